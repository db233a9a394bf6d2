package closer

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPace_StaysWithinItsBoundsAndHalvesAtMostOnceForWhatWasUnderWay, whatever the
// store does.
func TestPace_StaysWithinItsBoundsAndHalvesAtMostOnceForWhatWasUnderWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch, workers := rapid.IntRange(1, 999).Draw(t, "batch"), rapid.IntRange(1, 16).Draw(t, "workers")
		p := newPace(100*time.Millisecond, batch, workers)
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "transactions") {
			before := p
			took := time.Duration(rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "took"))
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(200*time.Millisecond)).Draw(t, "later")))
			inFlight := rapid.IntRange(1, p.most).Draw(t, "in flight")
			began := now.Add(-took)
			p.took(done{rapid.IntRange(1, batch).Draw(t, "orders"), inFlight, began, took})
			slow := took > p.target
			switch {
			case p.limit < p.least || p.limit > p.most:
				t.Fatalf("a pace of %d outside %d to %d", p.limit, p.least, p.most)
			case !slow && (p.limit < before.limit || p.limit > before.limit+p.step):
				t.Fatalf("%v took it from %d to %d", took, before.limit, p.limit)
			case !slow && 2*inFlight < before.limit && p.limit != before.limit:
				t.Fatalf("%d of %d in use took it to %d", inFlight, before.limit, p.limit)
			case slow && began.Before(before.cut) && p.limit != before.limit:
				t.Fatal("cut twice for what was under way")
			case slow && !began.Before(before.cut) && p.limit != max(before.limit/2, p.least):
				t.Fatalf("%v took it from %d to %d", took, before.limit, p.limit)
			}
			for _, replay := range []bool{false, true} {
				if n := p.batch(batch, replay); n < 1 || n > batch || n > p.limit {
					t.Fatalf("batches of %d by a pace of %d", n, p.limit)
				}
			}
		}
		if p.failed(now); p.limit != p.least {
			t.Fatalf("unavailable, and a pace of %d", p.limit)
		}
	})
}

// TestPace_SettlesWhereTheStoreIsQuickEnough, on a store that takes a millisecond
// for each order that is under way: no more than the target's worth, and not much
// less.
func TestPace_SettlesWhereTheStoreIsQuickEnough(t *testing.T) {
	p := newPace(250*time.Millisecond, 500, 4)
	p.failed(epoch)
	now := epoch
	for range 200 {
		took := time.Duration(p.limit) * time.Millisecond
		p.took(done{p.limit, p.limit, now, took})
		now = now.Add(took)
		if took > 2*p.target {
			t.Fatalf("%v for a transaction", took)
		}
	}
	if p.limit < 125 || p.limit > 300 {
		t.Errorf("a pace of %d, want it around 250", p.limit)
	}
}
