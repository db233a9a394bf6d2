package bubble

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"orderclose"
	"orderclose/internal/app"
)

// apart returns how far a clock is ahead (or behind, if negative) by chance: from
// a second up to most, and small errors as often as large ones.
func apart(random *rand.Rand, most time.Duration) time.Duration {
	d := time.Duration(math.Pow(most.Seconds(), random.Float64()) * float64(time.Second))
	if random.IntN(2) == 0 {
		return -d
	}
	return d
}

// mostHops is how many buckets an order may pass through that was due in remaining
// when it was scheduled by a clock that was ahead: those that were planned, by the
// longer of the plans by the right clock and by the wrong one, two, and what it
// takes to walk the error.
func mostHops(bs orderclose.Buckets, remaining, ahead time.Duration) int {
	return max(len(bs.Walk(remaining)), len(bs.Walk(remaining-ahead))) + 2 + bs.MostHops(ahead.Abs())
}

// TestBubble_ClocksThatAreApartMakeNothingEarlyAndLoseNothing: the producer's, by
// up to four minutes; the relay's, by up to a day; the broker's and the database's
// are right. In every other seed the order's due is by the producer's clock too.
// A failing seed is named in the test's name and plays the same again.
func TestBubble_ClocksThatAreApartMakeNothingEarlyAndLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range clockSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			clocksApart(t, uint64(seed))
		})
	}
}

func clocksApart(t *testing.T, seed uint64) {
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{
		"virtual": 5 * time.Minute, "odd": 9*time.Minute + 28*time.Second, "tour": 17 * time.Minute, "physical": 30 * time.Minute, "long": 33*time.Minute + 5*time.Second,
	}
	categories := []string{"virtual", "odd", "tour", "physical", "long"}
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		random := rand.New(rand.NewPCG(seed, 3))
		r.producerAhead, r.relayAhead = apart(random, 4*time.Minute), apart(random, 24*time.Hour)
		t.Logf("the producer is %v ahead, the relay %v", r.producerAhead, r.relayAhead)
		r.disturbed = true // one that is put into too long a bucket may be left to the sweep
		r.startAll()
		time.Sleep(time.Minute) // past what the first start schedules again: nobody believes a clock that is ahead
		most, last := map[string]int{}, time.Time{}
		for i := range 40 {
			created := time.Now()
			if seed%2 == 1 {
				created = created.Add(r.producerAhead)
			}
			o := r.orderOf(fmt.Sprint("o", i), created, categories[random.IntN(len(categories))])
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second)))) // a busy checkout
			most[o.ID] = mostHops(cfg.Buckets, time.Until(o.Due), r.producerAhead)
			if err := r.shop.Publish(ctx, o); err != nil {
				t.Fatal(err)
			}
			if o.Due.After(last) {
				last = o.Due
			}
		}
		// Behind by more than the slack, it takes a bucket that is read when some are due.
		late := 10*time.Millisecond + max(0, -r.producerAhead-orderclose.ReadSlack-orderclose.ReadLead)
		time.Sleep(time.Until(last.Add(late + 30*time.Second)))
		v := r.check(time.Now())
		for id, most := range most {
			if n := v.Appends[id]; n == 0 || n > most {
				t.Errorf("order %s took %d hops, want 1 to %d", id, n, most)
			}
		}
		if v.Closed() != len(most) || v.Quantile(1) > late {
			t.Errorf("closed %v of %d orders, up to %v late; want all and at most %v", v.ByPath, len(most), v.Quantile(1), late)
		}
	})
}

// TestBubble_AProducerADayAheadIsHeldBack: it takes every order for due and sends it
// straight to the close topic. The closer asks the database, and schedules anew.
func TestBubble_AProducerADayAheadIsHeldBack(t *testing.T) {
	t.Parallel()
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.producerAhead, r.relayAhead = 24*time.Hour, -11*time.Second
		r.startAll()
		time.Sleep(10 * time.Second)
		for i := range 10 {
			r.order(fmt.Sprint("o", i), "virtual", true)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		v := r.judge(time.Now())
		for _, broken := range v.Violations {
			if !strings.Contains(broken, "records were in the close topic before they were due") { // they are the producer's
				t.Error(broken)
			}
		}
		if v.ByPath["pipeline"] != 10 || v.Quantile(1) > 10*time.Millisecond || v.Lateness[0] < 0 {
			t.Errorf("closed %v, %v late", v.ByPath, v.Lateness)
		}
		if n := r.appends(); n > 10*(1+2+2) {
			t.Errorf("%d appends of 10 orders", n)
		}
	})
}

// TestBubble_ARelayWhoseClockIsAheadForwardsNothingEarly, also where no closer sends
// back what is not due.
func TestBubble_ARelayWhoseClockIsAheadForwardsNothingEarly(t *testing.T) {
	t.Parallel()
	inBubble(t, testConfig(), func(_ context.Context, r *rig) {
		r.disturbed, r.relayAhead = true, time.Hour
		r.start(app.Relay)
		time.Sleep(10 * time.Second)
		r.order("o", "virtual", true)
		time.Sleep(time.Minute)
		r.check(time.Time{})
	})
}
