package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// TestSimulation_ProducersWithEarlierListsMakeOrdersLateByHalfAMinute: buckets are added and taken into use one by one, relays restart at random
// moments, and each producer, as those in other languages, picks by any list that was ever in force. A failing seed plays the same again.
func TestSimulation_ProducersWithEarlierListsMakeOrdersLateByHalfAMinute(t *testing.T) {
	t.Parallel()
	for seed := range listSeeds.inRing() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			simulate(t, testConfig(), func(ctx context.Context, r *rig) { earlierLists(ctx, r, uint64(seed)) })
		})
	}
}

func earlierLists(ctx context.Context, r *rig, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 4))
	all := r.cfg.Buckets
	first := len(all) - 1 - random.IntN(2)
	lists := []orderclose.Buckets{all[first:]} // at first there are only long buckets
	use := func(list orderclose.Buckets) {
		changed := *r.cfg
		changed.Buckets = list
		r.cfg = &changed
	}
	use(lists[0])
	for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Compensator} {
		r.start(role)
	}
	r.disturbed, r.unlisted = true, all
	var last time.Time
	for n := range 30 {
		time.Sleep(time.Duration(random.Int64N(int64(90 * time.Second))))
		if random.IntN(8) == 0 && first > 0 {
			first--
			lists = append(lists, all[first:])
			use(all[first:])
		}
		if random.IntN(6) == 0 {
			r.stop(pipeline.Relay)
			r.start(pipeline.Relay)
		}
		known := lists[random.IntN(len(lists))]
		delay := time.Duration(random.Int64N(int64(35 * time.Minute)))
		if random.IntN(2) == 0 {
			delay /= 10
		}
		if due := r.lateOrder(ctx, known, fmt.Sprint("order-", n), delay); due.After(last) {
			last = due
		}
	}
	// A record in a bucket that is too long stays there for the bucket's length; the loop has closed its order.
	time.Sleep(max(time.Until(last), all[len(all)-1].Length) + 2*time.Minute)
	use(all)
	r.mostAppends = 3 * (longestWalk(all, time.Hour) + 2)
	v := r.check(time.Now())
	expect.That(r.t, v.Quantile(1) <= 30*time.Second, "closed %v, the latest %v late; want half a minute at most", v.ByPath, v.Quantile(1))
}

// lateOrder creates an order with the delay, and publishes it by a list of buckets.
func (r *rig) lateOrder(ctx context.Context, known orderclose.Buckets, id string, delay time.Duration) (due time.Time) {
	r.t.Helper()
	p := must.Get(producer.New(producer.Options{
		Appender: r.kafka.Appender, Buckets: known, CloseTopic: r.cfg.Topics.Close,
		Delays: orderclose.Delays{Default: max(delay, time.Second)}, MaxDelay: r.cfg.MaxDelay,
	}))(r.t)
	r.shop.Producer = p
	return r.order(id, "any", true).Due
}
