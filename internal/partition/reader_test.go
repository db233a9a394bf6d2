package partition

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
)

func newReader(ctx context.Context, log Log) *Reader {
	return newToldReader(ctx, log, &told{})
}

func newToldReader(ctx context.Context, log Log, m ReaderMetrics) *Reader {
	return NewReader(ctx, log, orderclose.Claim{Topic: "t", Offset: 7}, "test", m, slog.New(slog.DiscardHandler))
}

// told is what a Reader last told its metrics.
type told struct {
	mu      sync.Mutex
	failing time.Time
	n       int // times that it told
	ended   bool
}

func (m *told) FetchFailing(_, _ string, _ int, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing, m.n = since, m.n+1
}

func (m *told) FetchEnded(string, string, int) { m.ended = true }

// last is since when fetches fail, and how often that was told.
func (m *told) last() (time.Time, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failing, m.n
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

// Since the first failure, however many follow; and nothing after it was revoked.
func TestReader_TellsSinceWhenFetchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var away atomic.Bool
		m := &told{}
		r := newToldReader(ctx, &fakeLog{fetch: func(offset int64) (orderclose.Fetched, error) {
			time.Sleep(time.Second) // as long as a fetch of what is read to its end
			if away.Load() {
				return orderclose.Fetched{}, errAway
			}
			return orderclose.Fetched{Next: offset}, nil
		}}, m)
		r.Start()
		r.Took(<-r.C)
		if since, n := m.last(); !since.IsZero() || n != 1 {
			t.Errorf("fails since %v, told %d times, and all is well", since, n)
		}
		away.Store(true)
		began := time.Now()
		r.Start()
		time.Sleep(5 * time.Minute)
		if since, n := m.last(); since.Sub(began) != time.Second || n != 2 {
			t.Errorf("fails since %v after the first fetch began, told %d times; want 1s, once", since.Sub(began), n-1)
		}
		away.Store(false)
		r.Took(<-r.C)
		if since, _ := m.last(); !since.IsZero() {
			t.Errorf("fails since %v, and goes on", since)
		}
		cancel()
		r.Wait()
		if !m.ended {
			t.Error("does not tell of its end")
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
