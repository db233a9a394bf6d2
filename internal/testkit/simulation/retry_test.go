package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// exec changes the database directly, as a person does with other tools.
func (r *rig) exec(query string, args ...any) {
	r.t.Helper()
	must.Get(r.world.DB().ExecContext(r.t.Context(), query, args...))(r.t)
}

// rows returns the number that a query selects.
func (r *rig) rows(query string) (n int) {
	r.t.Helper()
	must.Do(r.t, r.world.DB().QueryRowContext(r.t.Context(), query).Scan(&n))
	return n
}

// lose removes the stock row of the rig's orders, so that none can be closed, until restore is called.
func (r *rig) lose() (restore func()) {
	r.exec("UPDATE stock SET sku_id = 'lost' WHERE sku_id = ?", scenario.SKU(0))
	return func() { r.exec("UPDATE stock SET sku_id = ? WHERE sku_id = 'lost'", scenario.SKU(0)) }
}

// records reads a whole topic.
func (r *rig) records(ctx context.Context, topic string) (all []wire.Message) {
	r.t.Helper()
	n := must.Get(r.kafka.Partitions(ctx, topic))(r.t)
	for p := range n {
		first, end, err := r.kafka.Bounds(ctx, topic, p)
		if err == nil {
			err = reads.Log{Cluster: r.kafka}.ReadSpan(ctx, topic, reads.Span{Partition: p, First: first, End: end}, func(records []wire.RawRecord) error {
				for _, record := range records {
					m, err := record.Message()
					if err != nil {
						return err
					}
					m.Topic, m.Partition = topic, p
					all = append(all, m)
				}
				return nil
			})
		}
		must.Do(r.t, err)
	}
	return all
}

// TestSimulation_AFailingOrderIsRetried after one minute, and two, and closes at the first attempt that
// can succeed. Another order keeps failing, and becomes a dead letter after the fourth attempt.
func TestSimulation_AFailingOrderIsRetried(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startPipeline()
		time.Sleep(10 * time.Second)
		due := r.order("restored", "virtual", true).Due
		restore := r.lose()
		time.Sleep(time.Until(due.Add(2 * time.Minute))) // between the second attempt and the third
		restore()
		time.Sleep(8 * time.Minute)
		v := r.check(time.Now())
		if late := v.Quantile(1); v.ByPath["pipeline"] != 1 || late < 3*time.Minute || late > 199*time.Second {
			t.Errorf("closed %v, %v late; want it 3 minutes late, and a tenth at most", v.ByPath, late)
		}

		due = r.order("hopeless", "virtual", true).Due
		restore = r.lose()
		time.Sleep(time.Until(due.Add(8 * time.Minute)))
		restore()
		dead := r.records(ctx, r.cfg.Topics.DeadLetter)
		must.That(t, len(dead) == 1 && string(dead[0].Key) == "hopeless", "%d dead letters, want that of order hopeless", len(dead))
		first := wire.Message{}
		for _, m := range r.records(ctx, r.cfg.Topics.Close) {
			if string(m.Key) == "hopeless" && (first.Topic == "" || m.Appended.Before(first.Appended)) {
				first = m
			}
		}
		for header, want := range map[string]string{
			"cause": "failed", "stage": "closer", "attempt": "3", "source-topic": r.cfg.Topics.Close,
			"origin-topic": r.cfg.Topics.Close, "origin-partition": fmt.Sprint(first.Partition), "origin-offset": fmt.Sprint(first.Offset),
		} {
			got, _ := dead[0].Header(header)
			expect.That(t, got == want, "%s is %q, want %q", header, got, want)
		}
		r.deadCauses = []string{"failed"}
		r.check(due) // the order stays open
	})
}

// TestSimulation_ARecordBeforeItsOrderClosesItAMinuteLater: the checkout has published the record before it committed the order.
func TestSimulation_ARecordBeforeItsOrderClosesItAMinuteLater(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startPipeline()
		time.Sleep(10 * time.Second)
		o := r.shop.Producer.Order("slow-commit", time.Now(), "virtual")
		must.Do(t, r.shop.Publish(ctx, o))
		time.Sleep(time.Until(o.Due.Add(30 * time.Second)))
		must.Do(t, r.shop.Orders.CreateOrder(ctx, o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 1}}))
		time.Sleep(time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 1 && v.Quantile(1) <= 67*time.Second, "closed %v, %v late", v.ByPath, v.Quantile(1))
	})
}

// TestSimulation_AReplayIsRetriedAndNotReplayedItself: copies and their retries keep their mark, and a second replay, whose window
// has them, changes nothing.
func TestSimulation_AReplayIsRetriedAndNotReplayedItself(t *testing.T) {
	cfg := testConfig()
	cfg.Compensator.Period = 24 * time.Hour
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startStable()
		begin := time.Now()
		for i := range 10 {
			r.order(fmt.Sprint("o", i), "virtual", true)
		}
		restore := r.lose()
		time.Sleep(14 * time.Minute) // every order is a dead letter by now
		r.deadCauses = []string{"failed"}
		closes := len(r.records(ctx, cfg.Topics.Close))
		dead := len(r.records(ctx, cfg.Topics.DeadLetter))
		must.That(t, dead == 10 && closes == 40, "%d dead letters and %d attempts of 10 orders", dead, closes)
		run := func() {
			plan := must.Get(ops.Pipeline{Config: cfg, Kafka: r.kafka}.PlanReplay(ctx, ops.ReplayRequest{From: begin, To: time.Now()}))(t)
			result, err := ops.Replay(ctx, reads.Log{Cluster: r.kafka}, plan, ops.ReplayRate, nil)
			expect.That(t, err == nil && result.Sent == 40 && int64(result.Sent+result.Skipped) == plan.Records,
				"planned %d, sent %d, passed over %d, %v; want the 40 originals of the window each time", plan.Records, result.Sent, result.Skipped, err)
		}
		run()
		time.Sleep(time.Second)
		restore() // after the first attempt of the replay
		time.Sleep(3 * time.Minute)
		v := r.check(time.Now())
		expect.Equal(t, v.ByPath["pipeline"], 10, "closed by the pipeline of %v", v.ByPath)
		run()
		time.Sleep(10 * time.Second)
		r.check(time.Now())
		// The window twice, and the copies that failed in the first run once more.
		copies := 0
		for _, m := range r.records(ctx, cfg.Topics.Close) {
			if m.Raw().IsCopy() {
				copies++
			}
		}
		expect.Equal(t, copies, 3*40, "copies in the close topic")
	})
}

// TestSimulation_DeadlinesMoveWhileTheRecordIsOnItsWay: the deadline in the database decides.
func TestSimulation_DeadlinesMoveWhileTheRecordIsOnItsWay(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	move := func(t *testing.T, name string, scene func(ctx context.Context, r *rig, o orderclose.Order)) {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Compensator.Period = 10 * time.Minute
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.startAll()
				time.Sleep(100 * time.Second)          // between two sweeps
				o := r.order("moved", "virtual", true) // 5 minutes
				time.Sleep(30 * time.Second)
				scene(ctx, r, o)
			})
		})
	}
	due := func(r *rig, o orderclose.Order, to time.Time) {
		r.exec("UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0", to.UnixMilli(), o.ID)
	}
	closedOnTime := func(r *rig) {
		r.t.Helper()
		v := r.check(time.Now())
		expect.That(r.t, v.ByPath["pipeline"] == 1 && v.Quantile(1) == 0, "closed %v, %v late; want it by the pipeline, on time", v.ByPath, v.Quantile(1))
	}
	move(t, "later and later again", func(ctx context.Context, r *rig, o orderclose.Order) {
		due(r, o, o.Due.Add(2*time.Minute))
		time.Sleep(time.Until(o.Due.Add(time.Minute)))
		due(r, o, o.Due.Add(4*time.Minute))
		time.Sleep(4 * time.Minute)
		closedOnTime(r)
	})
	move(t, "earlier by an UPDATE and one more record", func(ctx context.Context, r *rig, o orderclose.Order) {
		late := o.Due
		o.Due = o.Due.Add(-3 * time.Minute)
		due(r, o, o.Due)
		must.Do(r.t, r.shop.Publish(ctx, o))
		time.Sleep(time.Until(o.Due.Add(time.Second)))
		closedOnTime(r)
		time.Sleep(time.Until(late.Add(time.Second))) // the older record finds nothing to do
		closedOnTime(r)
	})
	move(t, "earlier by an UPDATE alone", func(ctx context.Context, r *rig, o orderclose.Order) {
		r.disturbed = true     // the sweep closes what was published
		r.stop(pipeline.Relay) // its record would be faster than the sweep
		due(r, o, time.Now().Add(time.Minute))
		time.Sleep(time.Minute + missBound)
		expect.Equal(r.t, r.check(time.Now()).ByPath["sweep"], 1, "closed by the next sweep")
		r.start(pipeline.Relay)
		time.Sleep(10 * time.Second)
		expect.Equal(r.t, r.check(time.Now()).Closed(), 1, "closed")
	})
	move(t, "cancelled by an UPDATE", func(ctx context.Context, r *rig, o orderclose.Order) {
		answer, err := r.shop.Orders.Cancel(ctx, o.ID)
		must.That(r.t, err == nil && answer == shopdb.AnswerCancelled, "%v %v", answer, err)
		time.Sleep(time.Until(o.Due.Add(2 * time.Minute)))
		v := r.check(time.Now())
		expect.That(r.t, v.Cancelled == 1 && v.Closed() == 0, "%d cancelled, closed %v", v.Cancelled, v.ByPath)
		expect.Equal(r.t, len(r.records(ctx, r.cfg.Topics.Close)), 1, "records in the close topic, the one that found nothing to do")
	})
}
