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

// TestReader_FailedFetchesAreNoEvidenceOfDamage: one answer that cannot be read is no
// more believed after failed fetches than before.
func TestReader_FailedFetchesAreNoEvidenceOfDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newReader(t.Context(), &fakeLog{fetch: func(offset int64) (orderclose.Fetched, error) {
			switch tries++; tries {
			case 1, 2, 3:
				return orderclose.Fetched{}, errAway
			case 4, 5:
				return orderclose.Fetched{Next: offset + 1, Corrupt: &orderclose.Range{First: offset, Last: offset, Err: errAway}}, nil
			}
			return orderclose.Fetched{Next: offset + 3}, nil
		}})
		r.Start()
		if f := <-r.C; f.Corrupt != nil || f.Next != 10 {
			t.Errorf("corrupt %v, next %d after %d tries; want no damage, next 10", f.Corrupt, f.Next, tries)
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

// TestReader_ALoopThatReadsNothingHearsThatItsLogWasReplaced within a minute, and costs one
// question a minute.
func TestReader_ALoopThatReadsNothingHearsThatItsLogWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, began, asked := orderclose.LogID{Topic: [16]byte{1}}, time.Now(), 0
		r := newReader(t.Context(), &fakeLog{
			fetch: func(int64) (orderclose.Fetched, error) { return orderclose.Fetched{Next: 9, Log: log}, nil },
			verify: func(at orderclose.Position) (orderclose.Fetched, error) {
				if asked++; at.Log != log || at.Offset != 9 {
					t.Errorf("asked at %+v", at)
				}
				if time.Since(began) < 10*time.Minute {
					return orderclose.Fetched{Next: at.Offset, Log: at.Log}, nil
				}
				return orderclose.Fetched{Lost: &orderclose.Range{Err: errAway}, Replaced: true}, nil
			},
		})
		r.Start()
		r.Took(<-r.C)
		for time.Since(began) < 20*time.Minute {
			r.Verify()
			synctest.Wait()
			select {
			case f := <-r.C:
				r.Took(f)
				if f.Replaced {
					if late := time.Since(began); late > 11*time.Minute || asked > 12 {
						t.Errorf("heard of it after %v, asked %d times", late, asked)
					}
					return
				}
			default:
			}
			time.Sleep(maxSleep)
		}
		t.Error("never heard of it")
	})
}

// TestReader_WhatAFormerOwnerDidAheadIsVerifiedFirst: in a log that lost its end since,
// other records would count as done.
func TestReader_WhatAFormerOwnerDidAheadIsVerifiedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := orderclose.LogID{Topic: [16]byte{1}, Epoch: 5}
		acked, _ := EncodeDone(log, 10, []Run{{First: 15, End: 20}})
		replaced := false
		source := &fakeLog{
			fetch: func(offset int64) (orderclose.Fetched, error) {
				return orderclose.Fetched{Next: offset + 1, Log: log}, nil
			},
			verify: func(at orderclose.Position) (orderclose.Fetched, error) {
				if at.Offset != 20 || at.Log != log {
					t.Errorf("verified at %+v, want 20", at)
				}
				return orderclose.Fetched{Next: 12, Log: log, Lost: &orderclose.Range{Err: errAway}, Replaced: replaced}, nil
			},
		}
		for _, replaced = range []bool{false, true} {
			r := NewReader(t.Context(), source, orderclose.Claim{Topic: "t", Offset: 10, Acked: acked}, "test", &told{}, slog.New(slog.DiscardHandler))
			r.Start()
			if f := <-r.C; f.Replaced != replaced || !replaced && f.Next != 11 {
				t.Errorf("%+v, want replaced: %v", f, replaced)
			}
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
