package bubble

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
	"orderclose/internal/app"
	"orderclose/internal/checker"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/scenario"
	"orderclose/internal/store"
	"orderclose/producer"
)

// rig is a World with its topics, a shop, and stages that can be stopped and
// started like processes.
type rig struct {
	t      *testing.T
	cfg    *config.Config
	world  *World
	shop   *scenario.Shop
	kafka  *kafka.Cluster
	coal   *kafka.Coalescer
	logger *slog.Logger
	stops  map[app.Role]func()
}

// inBubble runs test with a rig, and no stage started, inside a bubble.
func inBubble(t *testing.T, cfg *config.Config, test func(ctx context.Context, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg)
		defer r.close()
		test(t.Context(), r)
	})
}

func newRig(t *testing.T, cfg *config.Config) *rig {
	r := &rig{t: t, cfg: cfg, stops: map[app.Role]func(){}, logger: slog.New(slog.DiscardHandler)}
	var err error
	if r.world, err = New(Options{InBubble: true, Logger: r.logger}); err != nil {
		t.Fatal(err)
	}
	if r.kafka, err = r.world.Kafka("checkout"); err != nil {
		t.Fatal(err)
	}
	if _, left, err := r.kafka.Apply(t.Context(), app.TopicSpecs(cfg)); err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	r.coal = kafka.NewCoalescer(r.kafka)
	p, err := producer.New(producer.Options{
		Appender: r.coal, Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, MaxDelay: cfg.MaxDelay,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.shop = &scenario.Shop{Store: r.world.Store, Producer: p}
	if err := r.shop.Stock(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) close() {
	for role := range r.stops {
		r.stop(role)
	}
	r.coal.Close()
	r.kafka.Close()
	r.world.Close()
}

// start starts a role as a process of its own.
func (r *rig) start(role app.Role) {
	c, err := r.world.Connect(string(role))
	if err != nil {
		r.t.Fatal(err)
	}
	a, err := app.New(app.Options{Config: r.cfg, Kafka: c.Kafka, Store: c.Store, Redis: c.Redis, Logger: r.logger})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, role) }()
	r.stops[role] = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("%s: %v", role, err)
		}
		Disconnect(c)
	}
}

func (r *rig) stop(role app.Role) {
	r.stops[role]()
	delete(r.stops, role)
}

func (r *rig) startAll() {
	for _, role := range app.AllRoles() {
		r.start(role)
	}
}

// check judges; orders due before openAfter must not be open.
func (r *rig) check(openAfter time.Time) *checker.Verdict {
	r.t.Helper()
	delays := map[string]string{}
	for _, b := range r.cfg.Buckets {
		delays[b.Topic] = r.cfg.RelayGroup(b)
	}
	v, err := checker.Check(r.t.Context(), checker.Servers{DB: r.world.Store.DB(), Brokers: r.world.Brokers(), Dial: r.world.Dial},
		checker.Expect{
			Stock: r.shop.StartStock(), Paid: r.shop.Paid(), OpenAfter: openAfter,
			Delays: delays, CloseTopic: r.cfg.Topics.Close, DeadLetterTopic: r.cfg.Topics.DeadLetter,
		})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, broken := range v.Violations {
		r.t.Error(broken)
	}
	return v
}

// testConfig is the shipped configuration with two partitions per topic.
func testConfig() *config.Config {
	c := config.Default()
	c.Partitions = 2
	return c
}

// order creates an order of a category and publishes it.
func (r *rig) order(id, category string, publish bool) orderclose.Order {
	r.t.Helper()
	o := r.shop.Producer.Order(id, time.Now(), category)
	if err := r.world.Store.CreateOrder(r.t.Context(), o, []store.Item{{SKU: scenario.SKU(0), Quantity: 2}}); err != nil {
		r.t.Fatal(err)
	}
	if publish {
		if err := r.shop.Producer.Schedule(r.t.Context(), o); err != nil {
			r.t.Fatal(err)
		}
	}
	return o
}

func TestBubble_AnOrderOf30MinutesClosesAt30MinutesToTheMillisecond(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second) // let the groups settle
		o := r.order("patient", "physical", true)
		time.Sleep(31 * time.Minute)
		v := r.check(time.Now())
		if v.ByPath["pipeline"] != 1 || len(v.Lateness) != 1 || v.Lateness[0] != 0 {
			t.Errorf("closed %v after %v, want one by the pipeline with lateness 0 (due %v)", v.ByPath, v.Lateness, o.Due)
		}
	})
}

func TestBubble_MixedDelaysDoNotWaitForOneAnother(t *testing.T) {
	cfg := testConfig()
	cfg.Delays.ByCategory = map[string]time.Duration{
		"flash": 3 * time.Second, "quick": 45 * time.Second, "virtual": 5 * time.Minute, "odd": 17 * time.Minute, "physical": 30 * time.Minute,
	}
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second)
		for i, category := range []string{"physical", "odd", "virtual", "quick", "flash", "flash", "quick", "virtual", "odd", "physical"} {
			r.order(category+string(rune('a'+i)), category, true)
			time.Sleep(137 * time.Millisecond)
		}
		time.Sleep(32 * time.Minute)
		v := r.check(time.Now())
		if v.ByPath["pipeline"] != 10 || v.Quantile(1) != 0 {
			t.Errorf("closed %v, the latest %v late; want all 10 by the pipeline, none late", v.ByPath, v.Quantile(1))
		}
	})
}

func TestBubble_AnOrderNeverPublishedClosesWithinTheMissBound(t *testing.T) {
	cfg := testConfig()
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(7 * time.Minute) // somewhere between two sweeps
		o := r.order("forgotten", "virtual", false)
		bound := cfg.Compensator.Period + cfg.Compensator.Grace + 2*time.Minute
		time.Sleep(time.Until(o.Due.Add(bound)))
		if v := r.check(time.Now()); v.ByPath["sweep"] != 1 {
			t.Errorf("closed %v, want one by the sweep", v.ByPath)
		}
	})
}

func TestBubble_APaidOrderIsNeverClosed(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		o := r.order("paid", "virtual", true)
		time.Sleep(4 * time.Minute)
		if answer, err := r.world.Store.Pay(ctx, o.ID); err != nil || answer != store.NowPaid {
			t.Fatal(answer, err)
		}
		time.Sleep(3 * time.Hour)
		if v := r.check(time.Now()); v.Paid != 1 || v.Closed() != 0 {
			t.Errorf("%d paid and %d closed, want 1 and 0", v.Paid, v.Closed())
		}
	})
}

func TestBubble_WithThePipelineOffTheSweepAloneClosesAll(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.start(app.Compensator)
		steps := scenario.Plan(scenario.Spec{Seed: 1, Orders: 40, Over: time.Minute, Categories: []string{"virtual", "physical"}, SKUs: 20})
		if err := r.shop.Run(ctx, time.Now(), steps); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(r.shop.LastDue()) + 63*time.Minute)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 0 || v.ByPath["sweep"] == 0 {
			t.Errorf("closed %v, want all by the sweep", v.ByPath)
		}
	})
}

func TestBubble_ACleanRunLeavesTheSweepNothing(t *testing.T) {
	inBubble(t, testConfig(), func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second)
		for i := range 20 {
			r.order("o"+string(rune('a'+i)), "virtual", true)
		}
		time.Sleep(2 * time.Hour)
		if v := r.check(time.Now()); v.ByPath["sweep"] != 0 || v.ByPath["pipeline"] != 20 {
			t.Errorf("closed %v, want all 20 by the pipeline", v.ByPath)
		}
	})
}

func TestBubble_PoisonGoesToTheDeadLettersAndStopsNobody(t *testing.T) {
	cfg := testConfig()
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		r.startAll()
		time.Sleep(10 * time.Second)
		good := func(key string) orderclose.Message {
			m, err := orderclose.Record{Order: orderclose.Order{ID: key, CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now()}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		noKey, noDue, badDue, farDue, badJSON := good("x"), good("no-due"), good("bad-due"), good("far-due"), good("bad-json")
		noKey.Key = nil
		noDue.Headers = noDue.Headers[1:]
		badDue.Headers[0].Value = []byte("tomorrow")
		farDue.Headers[0].Value = []byte("253402300799000") // the year 9999
		badJSON.Value = []byte(`{"order_id":`)
		delay := cfg.Buckets[0].Topic
		for _, m := range []orderclose.Message{noKey, noDue, badDue, farDue} {
			if err := r.coal.Append(ctx, delay, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.coal.Append(ctx, cfg.Topics.Close, badJSON); err != nil {
			t.Fatal(err)
		}
		if err := r.coal.Append(ctx, cfg.Topics.Close, good("unknown-order")); err != nil {
			t.Fatal(err)
		}
		o := r.order("healthy", "virtual", true)
		time.Sleep(10 * time.Minute)
		v := r.check(time.Now())
		if v.ByPath["pipeline"] != 1 || v.Quantile(1) != 0 {
			t.Errorf("order %s: closed %v, late %v", o.ID, v.ByPath, v.Quantile(1))
		}
		causes := r.deadLetters(ctx)
		want := map[string]int{"no_key": 1, "bad_due": 2, "due_too_far": 1, "bad_value": 1, "not_found": 1}
		if diff := cmp.Diff(want, causes); diff != "" {
			t.Errorf("dead letters by cause (-want +got):\n%s", diff)
		}
	})
}

// deadLetters counts the dead letters by cause, and requires coordinates.
func (r *rig) deadLetters(ctx context.Context) map[string]int {
	r.t.Helper()
	f, err := r.kafka.Fetch(ctx, r.cfg.Topics.DeadLetter, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	causes := map[string]int{}
	for _, m := range f.Messages {
		cause, _ := m.Header(orderclose.HeaderCause)
		causes[cause]++
		for _, h := range []string{orderclose.HeaderStage, orderclose.HeaderDetail, orderclose.HeaderSourceTopic, orderclose.HeaderSourcePartition, orderclose.HeaderSourceOffset} {
			if v, _ := m.Header(h); v == "" {
				r.t.Errorf("dead letter %s has no %s", cause, h)
			}
		}
	}
	return causes
}

// TestBubble_RandomScenariosKeepThePromises plays random orders against stages
// that are stopped and started at random. A failing seed is named in the test's
// name and plays the same again.
func TestBubble_RandomScenariosKeepThePromises(t *testing.T) {
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { randomScenario(t, uint64(seed)) })
	}
}

// seeds is how many scenarios an ordinary run plays.
const seeds = 50

func randomScenario(t *testing.T, seed uint64) {
	cfg := testConfig()
	cfg.Buckets = orderclose.Buckets{
		{Topic: "delay_1s", Length: time.Second}, {Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute},
	}
	cfg.Delays = orderclose.Delays{Default: 40 * time.Second, ByCategory: map[string]time.Duration{
		"flash": 2 * time.Second, "quick": 10 * time.Second, "virtual": time.Minute, "physical": 95 * time.Second,
	}}
	cfg.Compensator.Period = 2 * time.Minute
	cfg.Compensator.Grace = 20 * time.Second
	inBubble(t, cfg, func(ctx context.Context, r *rig) {
		random := rand.New(rand.NewPCG(seed, 1))
		r.startAll()
		stop, restarts := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(restarts)
			r.restartAtRandom(random, stop)
		}()
		steps := scenario.Plan(scenario.Spec{
			Seed: seed, Orders: 60, Over: 90 * time.Second, SKUs: 20,
			Categories: []string{"flash", "quick", "virtual", "physical", "unheard-of"},
		})
		if err := r.shop.Run(ctx, time.Now(), steps); err != nil {
			t.Error(err)
		}
		close(stop)
		<-restarts
		// The bound of a miss; a sweep that a restart cut short begins again at once.
		bound := cfg.Compensator.Period + cfg.Compensator.Grace + 2*time.Minute
		time.Sleep(time.Until(r.shop.LastDue().Add(bound)))
		r.check(time.Now())
	})
}

// restartAtRandom stops a role now and then, for a while, until stop.
func (r *rig) restartAtRandom(random *rand.Rand, stop <-chan struct{}) {
	roles := app.AllRoles()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.Int64N(int64(30 * time.Second)))):
		}
		role := roles[random.IntN(len(roles))]
		r.stop(role)
		time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
		r.start(role)
	}
}
