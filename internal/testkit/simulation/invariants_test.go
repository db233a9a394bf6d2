package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// commitLog records every commit that reaches the broker.
type commitLog struct {
	mu      sync.Mutex
	commits []checker.Commit
}

func recordCommits(w *pipelinetest.Servers) *commitLog {
	log := &commitLog{}
	w.Broker.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.KeepControl()
		log.mu.Lock()
		defer log.mu.Unlock()
		c := req.(*kmsg.OffsetCommitRequest)
		for _, t := range c.Topics {
			for _, p := range t.Partitions {
				metadata := ""
				if p.Metadata != nil {
					metadata = *p.Metadata
				}
				log.commits = append(log.commits, checker.Commit{At: time.Now(), Group: c.Group, Topic: t.Topic, Partition: p.Partition,
					Offset: p.Offset, Metadata: metadata})
			}
		}
		return nil, nil, false
	})
	return log
}

func (w *commitLog) all() []checker.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commits)
}

// state returns the rows of orders and stock.
func (r *rig) state() checker.State {
	r.t.Helper()
	s := must.Get(checker.ReadState(r.t.Context(), r.world.DB()))(r.t)
	return s
}

// unchanged requires that do changes no order and no stock.
func (r *rig) unchanged(do func()) {
	r.t.Helper()
	before := r.state()
	do()
	for _, diff := range before.Diff(r.state()) {
		r.t.Error(diff)
	}
}

// mixed plays orders that are paid, cancelled, published or unpublished, until all are in a final state.
func (r *rig) mixed(ctx context.Context) {
	r.t.Helper()
	r.disturbed = true
	steps := scenario.Plan(scenario.Spec{Seed: 5, Orders: 40, Over: time.Minute, Categories: []string{"virtual", "other"}, SKUs: 20})
	must.Do(r.t, r.shop.Run(ctx, time.Now(), steps))
	time.Sleep(time.Until(r.shop.LastDue()) + missBound)
	v := r.check(time.Now())
	expect.That(r.t, v.Closed() != 0 && v.Paid != 0, "closed %v, %d paid: the test needs closed and paid orders", v.ByPath, v.Paid)
}

func TestSimulation_ReplayingTheWholeCloseTopicChangesNothing(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(ctx context.Context, r *rig) {
		begin := time.Now()
		r.startStable()
		r.mixed(ctx)
		plan, err := ops.Pipeline{Config: r.cfg, Kafka: r.kafka}.PlanReplay(ctx, ops.ReplayRequest{From: begin, To: time.Now()})
		must.That(t, err == nil && plan.Records != 0, "%v %v", plan, err)
		r.unchanged(func() {
			replayed := must.Get(ops.Replay(ctx, reads.Log{Cluster: r.kafka}, plan, ops.ReplayRate, nil))(t)
			expect.Equal(t, int64(replayed.Sent), int64(plan.Records), "records that were sent")
			time.Sleep(time.Minute)
		})
		r.check(time.Now())
	})
}

// sweepOnce returns a function that runs one sweep, in its own process without a lock.
func (r *rig) sweepOnce(name string) (sweep func(ctx context.Context) (found, closed int), stop func()) {
	r.t.Helper()
	c := r.connect(name)
	a := must.Get(pipeline.New(pipeline.Options{Config: r.cfg, Connections: clients.Clients{Kafka: c.Kafka, Store: c.Store}, Logger: r.logger}))(r.t)
	comp := must.Get(a.Compensator())(r.t)
	return func(ctx context.Context) (int, int) {
		report, err := comp.Sweep(ctx, false)
		expect.NoError(r.t, err)
		return report.Found, report.Closed
	}, func() { c.Close() }
}

func TestSimulation_TwoSweepsAtOnceChangeNothing(t *testing.T) {
	cfg := testConfig()
	cfg.Compensator.Rate = 70 // pages of 7 orders
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		const orders = 60
		for i := range orders {
			r.order(fmt.Sprintf("o%02d", i), "virtual", false)
		}
		time.Sleep(10 * time.Minute)
		sweepA, stopA := r.sweepOnce("a")
		sweepB, stopB := r.sweepOnce("b")
		defer stopA()
		defer stopB()
		both := func() (found, closed int) {
			var running sync.WaitGroup
			var mu sync.Mutex
			for _, sweep := range []func(context.Context) (int, int){sweepA, sweepB} {
				running.Go(func() {
					f, c := sweep(ctx)
					mu.Lock()
					defer mu.Unlock()
					found, closed = found+f, closed+c
				})
			}
			running.Wait()
			return found, closed
		}
		if _, closed := both(); closed != orders {
			t.Errorf("two sweeps together closed %d of %d", closed, orders)
		}
		r.check(time.Now())
		r.unchanged(func() {
			found, _ := both()
			expect.That(t, found == 0, "later sweeps find %d orders", found)
		})
	})
}

// TestSimulation_AShutdownLeavesNothingAckedUncommitted stops the parts in the middle of their work. The rig checks in every test how long a stop takes.
func TestSimulation_AShutdownLeavesNothingAckedUncommitted(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{"flash": 10 * time.Second}
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startStable()
		for i := range 1100 { // often enough that there are acks after the last commit
			r.order(fmt.Sprintf("o%04d", i), "flash", true)
			time.Sleep(10 * time.Millisecond)
		}
		for _, role := range pipeline.AllRoles() {
			r.stop(role)
		}
		r.orderly = true
		v := r.check(time.Now().Add(-time.Hour))
		expect.That(t, v.ByPath["pipeline"] != 0 && v.Waiting != 0, "closed %v, %d wait: the stop was not in the middle", v.ByPath, v.Waiting)
		r.orderly = false
		for _, role := range pipeline.AllRoles() {
			r.start(role)
		}
		time.Sleep(5 * time.Minute)
		expect.Equal(t, r.check(time.Now()).Repeated, 0, "records that were repeated after a shutdown")
	})
}
