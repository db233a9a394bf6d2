package simulation

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// randomSkew returns by how much a clock is ahead, or behind if negative: from a second to most, small errors as often as large ones.
func randomSkew(random *rand.Rand, most time.Duration) time.Duration {
	d := time.Duration(math.Pow(most.Seconds(), random.Float64()) * float64(time.Second))
	if random.IntN(2) == 0 {
		return -d
	}
	return d
}

// mostHops bounds the buckets that an order passes through. The order was due in remaining when a clock that was ahead scheduled it. The bound is the
// longer of the plans by the right and the wrong clock, two hops, and the hops that the error of the clock costs.
func mostHops(bs orderclose.Buckets, remaining, ahead time.Duration) int {
	return max(len(bs.Walk(remaining)), len(bs.Walk(remaining-ahead))) + 2 + longestWalk(bs, ahead.Abs())
}

// TestSimulation_WrongClocksMakeNothingEarlyAndLoseNothing: the producer's clock is wrong by up to four minutes, and the relay's by up to a day. The
// clocks of the brokers and the database are right. For odd seeds the due times are by the producer's clock too. The name of a failing subtest has its
// seed, which plays the same again.
func TestSimulation_WrongClocksMakeNothingEarlyAndLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range clockSeeds.inRing() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			wrongClocks(t, uint64(seed))
		})
	}
}

func wrongClocks(t *testing.T, seed uint64) {
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{
		"quick": 50 * time.Second, "virtual": 5 * time.Minute, "odd": 6*time.Minute + 28*time.Second, "tour": 9 * time.Minute, "long": 12*time.Minute + 5*time.Second,
	}
	categories := slices.Sorted(maps.Keys(cfg.Delays.ByCategory))
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		random := rand.New(rand.NewPCG(seed, 3))
		r.producerAhead, r.relayAhead = randomSkew(random, 4*time.Minute), randomSkew(random, 24*time.Hour)
		t.Logf("the producer is %v ahead, the relay %v", r.producerAhead, r.relayAhead)
		r.disturbed = true // an order in too long a bucket may be closed by the sweep
		r.startAll()
		time.Sleep(time.Minute) // until the orders are not among those that the first start schedules again
		most, last, before := map[string]int{}, time.Time{}, time.Duration(0)
		for i := range 40 {
			created := time.Now()
			if seed%2 == 1 {
				created = created.Add(r.producerAhead)
			}
			o := r.orderOf(fmt.Sprint("o", i), created, categories[random.IntN(len(categories))])
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second)))) // a busy checkout
			before = max(before, time.Since(o.Due))                          // by a producer that is far behind
			most[o.ID] = mostHops(cfg.Buckets, time.Until(o.Due), r.producerAhead)
			must.Do(t, r.shop.Publish(ctx, o))
			if o.Due.After(last) {
				last = o.Due
			}
		}
		// A producer whose clock is behind by more than 6 s (readSlack and readLead of the relay) chooses a bucket that is read late: the loop closes the order.
		late := 10*time.Millisecond + before + min(max(0, -r.producerAhead-6*time.Second), 30*time.Second)
		time.Sleep(time.Until(last.Add(late + 30*time.Second)))
		v := r.check(time.Now())
		for id, most := range most {
			n := v.Appends[id]
			expect.That(t, n != 0 && n <= most, "order %s took %d hops, want 1 to %d", id, n, most)
		}
		expect.That(t, v.Closed() == len(most) && v.Quantile(1) <= late,
			"closed %v of %d orders, up to %v late; want all and at most %v", v.ByPath, len(most), v.Quantile(1), late)
	})
}

// TestSimulation_AProducerADayAheadIsHeldBack: the producer believes that every order is due, and
// sends it to the close topic. The closer asks the database, and schedules the order again.
func TestSimulation_AProducerADayAheadIsHeldBack(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.producerAhead = 24 * time.Hour
		r.startStable()
		for i := range 10 {
			r.order(fmt.Sprint("o", i), "virtual", true)
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Minute)
		v := r.verdict(time.Now())
		for _, broken := range v.Violations {
			if !strings.Contains(broken, "records were in the close topic before they were due") { // the producer has appended them
				t.Error(broken)
			}
		}
		expect.That(t, v.ByPath["pipeline"] == 10 && v.Quantile(1) <= 10*time.Millisecond && v.Lateness[0] >= 0, "closed %v, %v late", v.ByPath, v.Lateness)
		expect.AtMost(t, r.appends(), 10*(1+2+2), "appends of 10 orders")
	})
}

// TestSimulation_ARelayWhoseClockIsTenMinutesWrong, by which no order closes early. A relay without a database learns the brokers' clock by its first
// append: if it is fast, that record comes too early, and the closer sends it back. If it is slow, what waits is late, once. The loop bounds that
// where a database can be searched.
func TestSimulation_ARelayWhoseClockIsTenMinutesWrong(t *testing.T) {
	t.Parallel()
	const late, onTime = 10*time.Minute + time.Second, time.Second
	for _, c := range []struct {
		ahead              time.Duration
		database, searched bool
		first, later       time.Duration // how late the orders of the first minutes, and those of later ones, may be
		early              int           // how many records may come too early: those that are due within ten minutes of the first append
	}{
		{10 * time.Minute, true, false, onTime, onTime, 0},
		{-10 * time.Minute, true, false, onTime, onTime, 0},
		{10 * time.Minute, false, false, onTime, onTime, 20},
		{10 * time.Minute, false, true, onTime, onTime, 20},
		{-10 * time.Minute, false, false, late, onTime, 0},
		{-10 * time.Minute, false, true, 30 * time.Second, onTime, 0},
	} {
		for _, every := range []time.Duration{10 * time.Second, 16 * time.Minute} {
			t.Run(fmt.Sprintf("ahead=%v/database=%v/searched=%v/every=%v", c.ahead, c.database, c.searched, every), func(t *testing.T) {
				simulate(t, testConfig(), func(ctx context.Context, r *rig) {
					r.disturbed = true
					r.startAs("relay", pipeline.Relay, func(o *pipeline.Options) {
						o.Now = func() time.Time { return time.Now().Add(c.ahead) }
						if c.database {
							o.Connections.Store = r.db
						}
					})
					r.start(pipeline.Closer)
					r.start(pipeline.Outbox)
					if c.searched {
						r.start(pipeline.Compensator)
					}
					time.Sleep(10 * time.Second)
					began := time.Now()
					for n := 0; time.Since(began) < 18*time.Minute; n++ {
						r.order(fmt.Sprint("o", n), "virtual", true)
						time.Sleep(every)
					}
					time.Sleep(7 * time.Minute)
					v := r.verdict(time.Now())
					early := 0
					for _, broken := range v.Violations {
						if _, err := fmt.Sscanf(broken, "%d records were in the close topic before", &early); err != nil {
							t.Error(broken)
						}
					}
					var first, later time.Duration
					for _, s := range v.Samples {
						if s.Due.Sub(began) < 16*time.Minute {
							first = max(first, s.Late)
						} else {
							later = max(later, s.Late)
						}
					}
					t.Logf("closed %v, late by %v at first and %v later, %d early records", v.ByPath, first, later, early)
					expect.That(t, first <= c.first && later <= c.later && early <= c.early, "late by %v at first and %v later, %d early records; want %v, %v, %d",
						first, later, early, c.first, c.later, c.early)
				})
			})
		}
	}
}

// TestSimulation_ABrokersClockMakesNoOrderLate: the brokers' clock is behind or ahead of the database's, all the time or from some moment on.
func TestSimulation_ABrokersClockMakesNoOrderLate(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	for _, ahead := range variants(-40*time.Minute, -time.Minute, time.Minute, 40*time.Minute) {
		for _, brokers := range []int{1, 3} {
			t.Run(fmt.Sprint(ahead, " on one of ", brokers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var set atomic.Bool
					set.Store(ahead < 0)
					o := pipelinetest.Options{Brokers: brokers, BrokerClock: func(node int32) time.Time {
						if set.Load() && node == 0 {
							return time.Now().Add(ahead)
						}
						return time.Now()
					}}
					cfg := testConfig()
					cfg.Delays.ByCategory["physical"], cfg.Delays.Default = 12*time.Minute, 8*time.Minute
					r := newRigOn(t, cfg, o)
					defer r.close()
					brokersClockIs(r, ahead, brokers, func() { set.Store(true) })
				})
			})
		}
	}
}

func brokersClockIs(r *rig, ahead time.Duration, brokers int, set func()) {
	r.startAll()
	time.Sleep(time.Minute)
	set()
	time.Sleep(2 * time.Minute) // until the clock is measured
	most := map[string]int{}
	for i, category := range []string{"virtual", "physical", "virtual", "physical", "other", "other"} {
		o := r.order(fmt.Sprint("o", i), category, true)
		most[o.ID] = mostHops(r.cfg.Buckets, time.Until(o.Due), 0)
		if brokers > 1 || ahead > 0 { // the leaders' clocks differ, or closers send early records back, at times to that broker again
			most[o.ID] += 3 * longestWalk(r.cfg.Buckets, ahead.Abs())
		}
		time.Sleep(11 * time.Second)
	}
	time.Sleep(13 * time.Minute)
	v := r.verdict(time.Now())
	for _, broken := range v.Violations {
		// The checker compares append times of different brokers, and with the database's clock.
		if !strings.Contains(broken, "before they were due") && !strings.Contains(broken, "before they were done") && !strings.Contains(broken, "went nowhere") {
			r.t.Error(broken)
		}
	}
	for id, most := range most {
		n := v.Appends[id]
		expect.That(r.t, n != 0 && n <= most, "order %s took %d hops, want 1 to %d", id, n, most)
	}
	// Where the brokers' clock is behind, the loop is first; the checker judges how late it is.
	expect.That(r.t, v.Closed() == 6 && (ahead < 0 || v.ByPath["pipeline"] == 6 && v.Quantile(1) <= time.Second),
		"closed %v, %v late; want 6 by the pipeline, at most a second late, or by the loop", v.ByPath, v.Lateness)
}
