package closer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
)

// stream appends orders to twelve partitions for so many seconds, n a second in each, and returns when each is due.
func stream(t *testing.T, log *orderLog, seconds, n int) map[string]time.Time {
	t.Helper()
	due := map[string]time.Time{}
	for s := range seconds {
		for p := range 12 {
			for i := range n {
				id := fmt.Sprintf("o-%d-%d-%d", p, s, i)
				due[id] = time.Now().Add(time.Duration(s+1)*time.Second + time.Duration(i)*time.Second/time.Duration(n))
				log.addAt(t, p, id, due[id])
			}
		}
	}
	return due
}

// latest returns by how much the latest of the orders was late.
func latest(t *testing.T, store *testkit.Store, due map[string]time.Time) (late time.Duration) {
	t.Helper()
	for id, at := range due {
		closed := store.ClosedAt(id)
		must.That(t, !closed.Before(at), "%s, due %v, was closed %v", id, at, closed)
		late = max(late, closed.Sub(at))
	}
	return late
}

// A store whose calls take the same time whatever their size, as a service far away, gets calls of a tenth of a batch, and four at once. One
// whose time grows with the orders gets calls that fit into the target time.
func TestCloser_AStoreThatTakesItsTimeKeepsUp(t *testing.T) {
	ring.NotShort(t)
	for _, batch := range []int{500, 200} {
		for name, slow := range map[string]func(int) time.Duration{
			"240 ms":                          always(240 * time.Millisecond),
			"260 ms":                          always(260 * time.Millisecond),
			"300 ms":                          always(300 * time.Millisecond),
			"500 ms":                          always(500 * time.Millisecond),
			"200 ms, and 1 ms for each order": func(n int) time.Duration { return time.Duration(200+n) * time.Millisecond },
			"5 ms for each order":             func(n int) time.Duration { return time.Duration(5*n) * time.Millisecond },
		} {
			t.Run(fmt.Sprint(batch, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log, store, metrics := &orderLog{}, &testkit.Store{Takes: slow}, testkit.NewMetrics()
					due := stream(t, log, 60, 5)
					defer startCloser(t, Options{Log: log, Store: store, Batch: batch, Registerer: metrics})()
					time.Sleep(time.Hour)
					late := latest(t, store, due)
					t.Logf("latest %v, limit %v", late, metrics.Value("close_concurrency_limit_orders"))
					expect.AtMost(t, late, 5*time.Second, "the latest order")
				})
			})
		}
	}
}

// Up to three orders on which the store hangs, each in a burst of its own partition, delay the orders of other partitions once, by the
// search for them.
func TestCloser_HangingOrdersDelayOtherPartitionsOnce(t *testing.T) {
	ring.NotShort(t)
	for _, target := range []time.Duration{DefaultTargetLatency, 3 * time.Second} {
		for hanging := range 4 {
			for _, burst := range []int{1, 500} {
				for _, lowest := range []bool{false, true} {
					t.Run(fmt.Sprint(target, hanging, burst, lowest), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							begin := time.Now()
							log, away := &orderLog{}, down(begin.Add(10*time.Second)) // the limit falls to its minimum
							store := &testkit.Store{Takes: always(5 * time.Millisecond), On: func(ctx context.Context, requests []orderclose.CloseRequest) error {
								if err := patient(ctx, requests); err != nil || !lowest {
									return err
								}
								return away(ctx, requests)
							}}
							for p := range hanging {
								for i := range burst {
									id := fmt.Sprintf("burst-%d-%d", p, i)
									if i == 0 {
										id = fmt.Sprint("hang-", p)
									}
									log.addAt(t, 12+p, id, begin.Add(30*time.Second))
								}
							}
							due := stream(t, log, 100, 1)
							for id, at := range due {
								if lowest && at.Before(begin.Add(25*time.Second)) {
									delete(due, id)
								}
							}
							defer startCloser(t, Options{Log: log, Store: store, TargetLatency: target})()
							time.Sleep(10 * time.Minute)
							late := latest(t, store, due)
							t.Log("latest", late)
							expect.AtMost(t, late, 45*time.Second, "the latest order of other partitions") // four calls of 10 s find the first one
						})
					})
				}
			}
		}
	}
}

// While no bucket accepts records, an order is tried again from memory when it is due.
func TestCloser_AnOrderThatWaitsForABucketIsClosedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(30 * time.Second)
		log, store := &orderLog{}, &testkit.Store{Due: map[string]time.Time{"moved": due}}
		log.Fail = testkit.Rejects(time.Hour, "delay_")
		log.add(t, "moved")
		defer runCloser(t, log, store, 500)()
		time.Sleep(2 * time.Hour)
		expect.Between(t, store.ClosedAt("moved").Sub(due), 0, 2*time.Second, "late")
		expect.Equal(t, log.doneBelow(), 1, "done below")
		expect.Equal(t, len(log.Appended()), 0, "topics with records")
	})
}

// A bucket that accepts nothing stops no partition, however large the records are that should go there: they go to a shorter one.
func TestCloser_ARetryGoesToABucketThatAcceptsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		store := &testkit.Store{On: testkit.FailsOn("bad"), Verdict: testkit.Gives(orderclose.PaymentPending, "pending")}
		log.Fail = testkit.Rejects(24*time.Hour, "delay_1m")
		large := strings.Repeat("x", 60_000)
		for i := range 300 {
			o := orderclose.Order{ID: fmt.Sprint("pending-", i), CreatedAt: begin, Due: begin, Attributes: map[string]any{"a": large}}
			if i%10 == 9 {
				o.ID = fmt.Sprint("bad-", i)
			}
			log.put(t, toClose, wire.Record{Order: o, Release: o.Due})
		}
		due := map[string]time.Time{}
		for s := range 1800 {
			id := fmt.Sprint("fresh-", s)
			due[id] = begin.Add(time.Duration(s+5) * time.Second)
			log.addAt(t, 0, id, due[id])
		}
		defer runCloser(t, log, store, 500)()
		time.Sleep(90 * time.Minute)
		expect.AtMost(t, latest(t, store, due), 15*time.Second, "the latest order behind them")
		left := map[string]bool{}
		for topic, records := range log.Appended() {
			for _, m := range records {
				r := must.Get(m.Decode())(t)
				left[r.Order.ID] = true
				expect.That(t, r.Order.Attributes["a"] == large, "%s in %s without its attributes", r.Order.ID, topic)
			}
		}
		expect.Equal(t, len(left), 300, "orders that went back to a bucket")
		expect.Equal(t, log.doneBelow(), 2100, "done below")
	})
}

// Stores of all kinds keep up: their calls take up to 10 s, the same for all sizes or more for each order, and vary. The orders of a
// second are a quarter of what the store closes if its calls take as long as the limiter may let them.
func TestCloser_KeepsUpWithAnyStore(t *testing.T) {
	ring.NotShort(t)
	first, after := ring.Seeds(3)
	for seed := first; seed < after; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			ms := func(most float64) float64 { return math.Exp(r.Float64() * math.Log(most)) } // small and large ones alike
			base, each, vary := ms(10_000), 0.0, r.Float64()/2
			if r.IntN(2) == 0 {
				each = ms(50)
			}
			target := []time.Duration{DefaultTargetLatency, ServiceTargetLatency}[r.IntN(2)]
			longest := max(float64(target.Milliseconds()), base*4/3)
			inFlight := 400.0
			if each > 0 {
				inFlight = min(inFlight, max((longest-base)/each, 1))
			}
			perSecond := inFlight / (base + each*inFlight) * 1000 / 4
			synctest.Test(t, func(t *testing.T) {
				store := &testkit.Store{Takes: func(n int) time.Duration {
					return time.Duration((base + each*float64(n)) * (1 - vary + 2*vary*r.Float64()) * float64(time.Millisecond))
				}}
				log, metrics, due := &orderLog{}, testkit.NewMetrics(), map[string]time.Time{}
				for i := range int(min(perSecond*300, 6_000)) {
					id := fmt.Sprint(i)
					due[id] = time.Now().Add(time.Duration(float64(i) / min(perSecond, 60) * float64(time.Second)))
					log.addAt(t, i%12, id, due[id])
				}
				defer startCloser(t, Options{Log: log, Store: store, Batch: 200, TargetLatency: target, Registerer: metrics})()
				time.Sleep(3 * time.Hour)
				late, most := latest(t, store, due), 5*time.Second+10*time.Duration(longest)*time.Millisecond
				t.Logf("%.0f ms and %.1f ms for each order, ±%.0f %%, target %v, %.1f orders/s: latest %v, limit %v",
					base, each, 100*vary, target, min(perSecond, 60), late, metrics.Value("close_concurrency_limit_orders"))
				expect.AtMost(t, late, most, "the latest order")
			})
		})
	}
}
