package partition

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
)

func newReader(ctx context.Context, log Log) *Reader {
	return NewReader(ctx, log, orderclose.Claim{Topic: "t", Offset: 7}, slog.New(slog.DiscardHandler))
}

func TestReader_RetriesAFetchThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newReader(t.Context(), &fakeLog{fetch: func(offset int64) (orderclose.Fetched, error) {
			if tries++; tries < 4 {
				return orderclose.Fetched{}, errAway
			}
			return orderclose.Fetched{Next: offset + 1}, nil
		}})
		r.Start()
		r.Start() // one is under way: this changes nothing
		f := <-r.C
		r.Took(f)
		if tries != 4 || r.Next() != 8 || r.Busy() {
			t.Errorf("%d tries, next %d, busy %v; want 4, 8, false", tries, r.Next(), r.Busy())
		}
	})
}

func TestReader_BelievesInDamageOnlyAfterFetchingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newReader(t.Context(), &fakeLog{fetch: func(offset int64) (orderclose.Fetched, error) {
			tries++
			return orderclose.Fetched{Next: offset + 1, Corrupt: &orderclose.Range{First: offset, Last: offset, Err: errAway}}, nil
		}})
		r.Start()
		if f := <-r.C; f.Corrupt == nil || tries != corruptTries {
			t.Errorf("corrupt %v after %d tries, want it after %d", f.Corrupt, tries, corruptTries)
		}
	})
}

func TestReader_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newReader(ctx, &fakeLog{fetch: func(int64) (orderclose.Fetched, error) { return orderclose.Fetched{}, errAway }})
		r.Start()
		cancel()
		r.Wait()
		select {
		case f := <-r.C:
			t.Errorf("handed over %+v", f)
		default:
		}
	})
}

// TestBackOff_TellsOfALongTroubleNowAndThen: not of each try, which are many.
func TestBackOff_TellsOfALongTroubleNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pauses, said, tries := NewBackOff(), 0, 0
		for begin := time.Now(); time.Since(begin) < time.Minute; tries++ {
			if pauses.Say() {
				said++
			}
			d := pauses.NextBackOff()
			if d <= 0 || d > 750*time.Millisecond {
				t.Fatalf("a pause of %v", d)
			}
			time.Sleep(d)
		}
		if said < 20 || said > 31 || tries < 80 {
			t.Errorf("%d of %d failed tries were told in a minute", said, tries)
		}
	})
}
