package bubble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose/internal/app"
	"orderclose/internal/checker"
	"orderclose/internal/replay"
	"orderclose/internal/scenario"
)

// witness sees every commit that reaches the broker.
type witness struct {
	mu      sync.Mutex
	commits []checker.Commit
}

func watchCommits(w *World) *witness {
	saw := &witness{}
	w.Broker.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.KeepControl()
		saw.mu.Lock()
		defer saw.mu.Unlock()
		c := req.(*kmsg.OffsetCommitRequest)
		for _, t := range c.Topics {
			for _, p := range t.Partitions {
				beside := ""
				if p.Metadata != nil {
					beside = *p.Metadata
				}
				saw.commits = append(saw.commits, checker.Commit{At: time.Now(), Group: c.Group, Topic: t.Topic, Partition: p.Partition, Offset: p.Offset, Metadata: beside})
			}
		}
		return nil, nil, false
	})
	return saw
}

func (w *witness) all() []checker.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commits)
}

// state is what must not change.
func (r *rig) state() checker.State {
	r.t.Helper()
	s, err := checker.ReadState(r.t.Context(), r.world.Store.DB())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// unchanged requires that what happens in between changes nothing.
func (r *rig) unchanged(happens func()) {
	r.t.Helper()
	before := r.state()
	happens()
	for _, diff := range before.Diff(r.state()) {
		r.t.Error(diff)
	}
}

// mixed plays orders that are paid, cancelled, published and not, until each has come
// to its end.
func (r *rig) mixed(ctx context.Context) {
	r.t.Helper()
	r.disturbed = true
	steps := scenario.Plan(scenario.Spec{Seed: 5, Orders: 40, Over: time.Minute, Categories: []string{"virtual", "physical"}, SKUs: 20})
	if err := r.shop.Run(ctx, time.Now(), steps); err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(time.Until(r.shop.LastDue()) + 63*time.Minute)
	if v := r.check(time.Now()); v.Closed() == 0 || v.Paid == 0 {
		r.t.Errorf("closed %v, %d paid: there is nothing that could change", v.ByPath, v.Paid)
	}
}

func TestBubble_ReplayingTheWholeCloseTopicChangesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		begin := time.Now()
		r.startAll()
		time.Sleep(10 * time.Second)
		r.mixed(ctx)
		plan, err := replay.Make(ctx, r.kafka, replay.Window{Topic: r.cfg.Topics.Close, Into: r.cfg.Topics.Replay, From: begin, To: time.Now()})
		if err != nil || plan.Records == 0 {
			t.Fatal(plan, err)
		}
		r.unchanged(func() {
			if result, err := replay.Run(ctx, r.kafka, plan, nil); err != nil || int64(result.Sent) != int64(plan.Records) {
				t.Error(result, err)
			}
			time.Sleep(time.Minute)
		})
		r.check(time.Now())
	})
}

// sweepOnce returns a function that sweeps once, as a process of its own without a lock.
func (r *rig) sweepOnce(name string) (sweep func(ctx context.Context) (found, closed int), stop func()) {
	r.t.Helper()
	c, err := r.world.Connect(name)
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := app.New(app.Options{Config: r.cfg, Kafka: c.Kafka, Store: c.Store, Logger: r.logger, Missed: r.misses.add})
	if err != nil {
		r.t.Fatal(err)
	}
	comp, err := a.Compensator(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return func(ctx context.Context) (int, int) {
		report, err := comp.Sweep(ctx, false)
		if err != nil {
			r.t.Error(err)
		}
		return report.Found, report.Closed
	}, func() { Disconnect(c) }
}

func TestBubble_TwoSweepsAtOnceChangeNothing(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Compensator.PageSize = 7
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
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
			if found, _ := both(); found != 0 {
				t.Errorf("afterwards they find %d", found)
			}
		})
	})
}

// TestBubble_AShutdownLeavesNothingAckedUncommitted: parts are stopped in the middle
// of their work. How long that takes the rig sees to, in every test.
func TestBubble_AShutdownLeavesNothingAckedUncommitted(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{"flash": 10 * time.Second}
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startAll()
		time.Sleep(10 * time.Second)
		for i := range 1100 { // so densely that something was acked since the last commit
			r.order(fmt.Sprintf("o%04d", i), "flash", true)
			time.Sleep(10 * time.Millisecond)
		}
		for _, role := range app.AllRoles() {
			r.stop(role)
		}
		r.orderly = true
		v := r.check(time.Now().Add(-time.Hour))
		if v.ByPath["pipeline"] == 0 || v.Waiting == 0 {
			t.Errorf("closed %v, %d wait: it was not in the middle", v.ByPath, v.Waiting)
		}
		r.orderly = false
		for _, role := range app.AllRoles() {
			r.start(role)
		}
		time.Sleep(5 * time.Minute)
		if v := r.check(time.Now()); v.Repeated != 0 {
			t.Errorf("%d records were repeated after a shutdown", v.Repeated)
		}
	})
}

// TestBubble_WhileKafkaTakesNothingNothingIsCommitted: whoever is killed then loses
// nothing.
func TestBubble_WhileKafkaTakesNothingNothingIsCommitted(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{"flash": 10 * time.Second}
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startAll()
		time.Sleep(10 * time.Second)
		for i := range 20 {
			r.order(fmt.Sprintf("o%02d", i), "flash", true)
		}
		fault := r.world.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		time.Sleep(30 * time.Second)
		moved := func() (n int) {
			for _, c := range r.witness.all() {
				if strings.HasPrefix(c.Topic, "delay_") && c.Offset > 0 {
					n++
				}
			}
			return n
		}
		if n := moved(); n > 0 {
			t.Errorf("%d commits of delay topics while nothing could leave them", n)
		}
		fault.Remove()
		time.Sleep(2 * time.Minute)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 20 || moved() == 0 {
			t.Errorf("closed %v, %d commits", v.ByPath, moved())
		}
	})
}
