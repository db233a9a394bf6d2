package simulation

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// TestSimulation_MixedDelaysDoNotWaitForOneAnother: each order closes on the millisecond.
func TestSimulation_MixedDelaysDoNotWaitForOneAnother(t *testing.T) {
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{
		"flash": 3 * time.Second, "quick": 45 * time.Second, "virtual": 5 * time.Minute, "odd": 17 * time.Minute, "physical": 30 * time.Minute,
	}
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startStable()
		for i, category := range []string{"physical", "odd", "virtual", "quick", "flash", "flash", "quick", "virtual", "odd", "physical"} {
			r.order(category+string(rune('a'+i)), category, true)
			time.Sleep(137 * time.Millisecond)
		}
		time.Sleep(32 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 10 && v.Quantile(1) == 0,
			"closed %v, the latest %v late; want all 10 by the pipeline, none late", v.ByPath, v.Quantile(1))
	})
}

func TestSimulation_AnOrderNeverPublishedClosesWithinTheMissBound(t *testing.T) {
	cfg := testConfig()
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(7 * time.Minute) // somewhere between two sweeps
		o := r.order("forgotten", "virtual", false)
		time.Sleep(time.Until(o.Due.Add(missBound)))
		v := r.check(time.Now())
		expect.That(t, v.ByPath["sweep"] == 1, "closed %v, want one by the sweep", v.ByPath)
	})
}

func TestSimulation_WithThePipelineOffTheSweepAloneClosesAll(t *testing.T) {
	cfg := testConfig()
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.start(pipeline.Compensator)
		r.disturbed = true
		steps := scenario.Plan(scenario.Spec{Seed: 1, Orders: 40, Over: time.Minute, Categories: []string{"virtual", "physical"}, SKUs: 20})
		must.Do(t, r.shop.Run(ctx, time.Now(), steps))
		time.Sleep(time.Until(r.shop.LastDue()) + missBound)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 0 && v.ByPath["sweep"] != 0, "closed %v, want all by the sweep", v.ByPath)
	})
}

// TestSimulation_ACleanRunLeavesNothingToTheSweep, and a paid order is never closed.
func TestSimulation_ACleanRunLeavesNothingToTheSweep(t *testing.T) {
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startStable()
		for i := range 20 {
			r.order("o"+string(rune('a'+i)), "virtual", true)
		}
		o := r.order("paid", "virtual", true)
		time.Sleep(4 * time.Minute)
		answer, err := r.shop.Orders.Pay(ctx, o.ID, "p-"+o.ID)
		must.That(t, err == nil && answer == shopdb.AnswerPaid, "%v %v", answer, err)
		time.Sleep(time.Until(o.Due.Add(missBound))) // the next sweep is over
		if v := r.check(time.Now()); v.ByPath["sweep"] != 0 || v.ByPath["pipeline"] != 20 || v.Paid != 1 {
			t.Errorf("closed %v and %d paid, want 20 by the pipeline and 1", v.ByPath, v.Paid)
		}
	})
}

func TestSimulation_UnreadableRecordsBecomeDeadLettersAndStopNothing(t *testing.T) {
	cfg := testConfig()
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.startStable()
		good := func(key string) wire.Message {
			m := must.Get(wire.Record{Order: orderclose.Order{ID: key, CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now()}.Encode())(t)
			return m
		}
		noKey, noDue, badDue, farDue, badJSON := good("x"), good("no-due"), good("bad-due"), good("far-due"), good("bad-json")
		noKey.Key = nil
		noDue.Headers = noDue.Headers[1:]
		badDue.Headers[0].Value = []byte("tomorrow")
		farDue.Headers[0].Value = []byte("253402300799000") // the year 9999
		badJSON.Value = []byte(`{"order_id":`)
		delay := cfg.Buckets[0].Topic
		for _, m := range []wire.Message{noKey, noDue, badDue, farDue} {
			must.Do(t, r.kafka.Appender.Append(ctx, delay, m))
		}
		must.Do(t, r.kafka.Appender.Append(ctx, cfg.Topics.Close, badJSON))
		must.Do(t, r.kafka.Appender.Append(ctx, cfg.Topics.Close, good("unknown-order")))
		o := r.order("healthy", "virtual", true)
		r.deadCauses = []string{"no_key", "bad_due", "due_too_far", "bad_value", "not_found"}
		time.Sleep(10 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 1 && v.Quantile(1) == 0, "order %s: closed %v, late %v", o.ID, v.ByPath, v.Quantile(1))
		causes := r.deadLetters(ctx)
		want := map[string]int{"no_key": 1, "bad_due": 2, "due_too_far": 1, "bad_value": 1, "not_found": 1}
		expect.Same(t, causes, want, "dead letters by cause")
	})
}

func TestSimulation_APartWaitsForItsServersAndNamesTheMissingOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true}))(t)
		defer w.Close()
		c := must.Get(w.Connect("late"))(t)
		defer c.Close()
		cfg := testConfig()
		w.Redis.SetError("LOADING") // the sweep must work without Redis
		a := must.Get(pipeline.New(pipeline.Options{Config: cfg, Connections: c}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx, pipeline.AllRoles()...) }()
		time.Sleep(time.Minute)
		missing := a.Ready()
		expect.That(t, len(missing) == 1 && strings.Contains(missing[0], "topic order-close: does not exist: run orderclose topics apply"), "waits for %v", missing)
		must.Do(t, a.CreateTopics(t.Context()))
		time.Sleep(10 * time.Second)
		expect.That(t, len(a.Ready()) == 0, "still waits for %v", a.Ready())
		cancel()
		expect.NoError(t, <-done)
	})
}
