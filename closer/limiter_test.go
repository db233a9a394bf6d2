package closer

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The store may do anything. A slow transaction that was in flight at the last cut does
// not halve the limit again.
func TestLimiter_StaysWithinItsBoundsAndHalvesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch, workers := rapid.IntRange(1, 999).Draw(t, "batch"), rapid.IntRange(1, 16).Draw(t, "workers")
		l := newLimiter(100*time.Millisecond, batch, workers)
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "transactions") {
			before := l
			took := time.Duration(rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "took"))
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(200*time.Millisecond)).Draw(t, "later")))
			inFlight := rapid.IntRange(1, l.maxLimit).Draw(t, "in flight")
			began := now.Add(-took)
			l.observe(sample{rapid.IntRange(1, batch).Draw(t, "orders"), inFlight, began, took})
			slow := took > l.target
			switch {
			case l.limit < l.minLimit || l.limit > l.maxLimit:
				t.Fatalf("a limit of %d outside %d to %d", l.limit, l.minLimit, l.maxLimit)
			case !slow && (l.limit < before.limit || l.limit > before.limit+l.step):
				t.Fatalf("a transaction of %v changed the limit from %d to %d", took, before.limit, l.limit)
			case !slow && 2*inFlight < before.limit && before.limit >= l.first && l.limit != before.limit:
				t.Fatalf("%d of %d in use changed the limit to %d", inFlight, before.limit, l.limit)
			case slow && began.Before(before.lastCut) && l.limit != before.limit:
				t.Fatal("cut twice for transactions in flight at the first cut")
			case slow && !began.Before(before.lastCut) && l.limit != max(before.limit/2, l.minLimit):
				t.Fatalf("a transaction of %v changed the limit from %d to %d", took, before.limit, l.limit)
			}
			for _, replay := range []bool{false, true} {
				if n := l.batchSize(batch, replay); n < 1 || n > batch || n > l.limit {
					t.Fatalf("a batch of %d with a limit of %d", n, l.limit)
				}
			}
		}
		if l.failed(now); l.limit != l.minLimit {
			t.Fatalf("the store is unavailable and the limit is %d", l.limit)
		}
	})
}

// The store takes a millisecond for each order in flight. The limit ends near the number
// of orders that fit into the target time.
func TestLimiter_SettlesAtTheTargetTime(t *testing.T) {
	l := newLimiter(250*time.Millisecond, 500, 4)
	l.failed(epoch)
	now := epoch
	for range 200 {
		took := time.Duration(l.limit) * time.Millisecond
		l.observe(sample{l.limit, l.limit, now, took})
		now = now.Add(took)
		if took > 2*l.target {
			t.Fatalf("a transaction took %v", took)
		}
	}
	if l.limit < 125 || l.limit > 300 {
		t.Errorf("a limit of %d, want it around 250", l.limit)
	}
}

// A limit that fell once is no smaller than that of a restarted closer hours later, though there were never many orders.
func TestLimiter_RecoversWhileFewOrdersAreClosed(t *testing.T) {
	l := newLimiter(250*time.Millisecond, 500, 4)
	l.failed(epoch)
	for range 10_000 {
		l.observe(sample{1, 1, epoch, time.Millisecond})
	}
	if want := newLimiter(250*time.Millisecond, 500, 4).limit; l.limit < want || l.limit > want+l.step {
		t.Errorf("a limit of %d, want %d", l.limit, want)
	}
}
