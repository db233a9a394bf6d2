package bubble

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose"
	"orderclose/compensator"
	"orderclose/internal/app"
	"orderclose/internal/checker"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/scenario"
	"orderclose/internal/store"
	"orderclose/producer"
	"orderclose/release"
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

	registry      *prometheus.Registry // of the role that was started last
	relayAhead    time.Duration        // of the relay's clock
	producerAhead time.Duration        // of the producer's
	services      http.RoundTripper    // reaches the user's services
	disturbed     bool                 // something was stopped, or not running, while orders were due
	deadCauses    []string             // of the dead letters that are to be expected
	releaser      release.Releaser     // of the release worker, if one is started
	oneClock      bool                 // the database's clock is right
	orderly       bool                 // all parts were stopped, on a broker that answered
	witness       *witness             // of commits
	file          string               // the topics.yaml that cfg was read from; "" for none
	apps          map[app.Role]*app.App
	mostAppends   int                // replaces maxAppends
	unlisted      orderclose.Buckets // whose topics hold records, and which are none of cfg's
	unanswered    bool               // the database may keep the answer to a commit to itself
	misses        misses
	causes        map[string]string // the right ones, of orders that sweeps close, where that is known
}

// misses are what sweeps say that they have closed, and why the pipeline had not.
type misses struct {
	mu  sync.Mutex
	all []checker.Miss
}

func (m *misses) add(told []compensator.Miss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range told {
		m.all = append(m.all, checker.Miss{OrderID: t.Order.ID, Cause: string(t.Cause)})
	}
}

func (m *misses) told() []checker.Miss {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]checker.Miss{}, m.all...)
}

const (
	// shutdownTime is how long a part may take to stop.
	shutdownTime = 10 * time.Second
	// relayTime is how long relays may need for what is due, at worst: a restart, and
	// another one's session.
	relayTime = 30 * time.Second
)

// inBubble runs test with a rig, and no stage started, inside a bubble.
func inBubble(t *testing.T, cfg *config.Config, test func(ctx context.Context, r *rig)) {
	t.Helper()
	inBubbleBehind(t, cfg, 0, test)
}

// inBubbleBehind does the same with a database whose clock is behind.
func inBubbleBehind(t *testing.T, cfg *config.Config, behind time.Duration, test func(ctx context.Context, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg, behind)
		r.oneClock = behind == 0
		defer r.close()
		test(t.Context(), r)
	})
}

func newRig(t *testing.T, cfg *config.Config, behind time.Duration) *rig {
	return newRigOn(t, cfg, Options{Now: func() time.Time { return time.Now().Add(-behind) }})
}

// newRigOn makes the rig's World as o says, whose other fields it sets.
func newRigOn(t *testing.T, cfg *config.Config, o Options) *rig {
	r := &rig{
		t: t, cfg: cfg, stops: map[app.Role]func(){}, apps: map[app.Role]*app.App{}, logger: slog.New(slog.DiscardHandler), oneClock: o.Now == nil,
	}
	var err error
	o.InBubble, o.Logger = true, r.logger
	if r.world, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.witness = watchCommits(r.world)
	if r.kafka, err = r.world.Kafka("checkout"); err != nil {
		t.Fatal(err)
	}
	if _, left, err := r.kafka.Apply(t.Context(), app.TopicSpecs(cfg)); err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	r.coal = kafka.NewCoalescer(r.kafka)
	p, err := producer.New(producer.Options{
		Appender: r.coal, Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, MaxDelay: cfg.MaxDelay,
		Now: func() time.Time { return time.Now().Add(r.producerAhead) },
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
func (r *rig) start(role app.Role) { r.startAs(role, role) }

// startAs does the same under a name, of which there may be several of a role.
func (r *rig) startAs(name, role app.Role) {
	c, err := r.world.Connect(string(role))
	if err != nil {
		r.t.Fatal(err)
	}
	r.registry = prometheus.NewRegistry()
	a, err := app.New(app.Options{
		Config: r.cfg, Kafka: c.Kafka, Store: c.Store, Redis: c.Redis, Releaser: r.releaser, Logger: r.logger, Registry: r.registry,
		Services: r.services, Missed: r.misses.add, Secrets: config.Secrets{HTTP: serviceSecrets, Payment: serviceSecrets},
		Now: func() time.Time { return time.Now().Add(r.relayAhead) }, TopicsFile: r.file,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.apps[name] = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, role) }()
	r.stops[name] = func() {
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			r.t.Errorf("%s: %v", role, err)
		}
		if took := time.Since(began); took > shutdownTime {
			r.t.Errorf("%s took %v to stop, at most %v is right", role, took, shutdownTime)
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
	v := r.judge(openAfter)
	for _, broken := range v.Violations {
		r.t.Error(broken)
	}
	return v
}

// judge does the same and leaves it to the caller what to make of it.
func (r *rig) judge(openAfter time.Time) *checker.Verdict {
	r.t.Helper()
	_, dispatching := r.stops[app.Outbox]
	for range 50 { // what was closed just now has its event published
		events, err := r.world.Store.Backlog(r.t.Context(), orderclose.EventOutbox)
		schedules, err2 := r.world.Store.Backlog(r.t.Context(), orderclose.ScheduleOutbox)
		if !dispatching || err == nil && err2 == nil && events.Rows+schedules.Rows == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var relayed time.Time
	if _, relaying := r.stops[app.Relay]; relaying {
		relayed = time.Now().Add(-relayTime)
	}
	delays := map[string]string{}
	for _, b := range slices.Concat(r.cfg.Buckets, r.unlisted) {
		delays[b.Topic] = r.cfg.RelayGroup(b)
	}
	v, err := checker.Check(r.t.Context(), checker.Servers{DB: r.world.Store.DB(), Brokers: r.world.Brokers(), Dial: r.world.Dial},
		checker.Expect{
			Stock: r.shop.StartStock(), Paid: r.shop.Paid(), OpenAfter: openAfter,
			Delays: delays, CloseTopic: r.cfg.Topics.Close, DeadLetterTopic: r.cfg.Topics.DeadLetter,
			CloserGroup: r.cfg.CloserGroup(), ReplayTopic: r.cfg.Topics.Replay, ReplayGroup: r.cfg.ReplayGroup(), DeadLetters: r.deadCauses,
			EventsTopic: r.cfg.Topics.Events, OutboxEmpty: dispatching,
			Published: r.shop.Published(), Added: r.shop.Added(), RolledBack: r.shop.RolledBack(), Calm: !r.disturbed, MaxAppends: r.maxAppends(),
			Commits: r.witness.all(), OneClock: r.oneClock, RelayedUntil: relayed, Stopped: r.orderly,
			Misses: r.misses.told(), Causes: r.causes, Unanswered: r.unanswered,
		})
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// maxAppends is how many appends to delay topics one order may take: the longest
// walk of any delay up to the longest that is listed (a relay that was stopped
// makes another delay of it), and two; twice that for one that is published twice, and once
// more for one that is scheduled again after the first start.
func (r *rig) maxAppends() int {
	if r.mostAppends > 0 {
		return r.mostAppends
	}
	longest := r.cfg.Delays.Default
	for _, d := range r.cfg.Delays.ByCategory {
		longest = max(longest, d)
	}
	return 3 * (r.cfg.Buckets.MostHops(longest) + 2)
}

// appends counts the records of all topics that orders travel through.
func (r *rig) appends() (n int64) {
	r.t.Helper()
	for _, spec := range app.TopicSpecs(r.cfg) {
		for p := 0; p < spec.Partitions && spec.Name != r.cfg.Topics.Control; p++ {
			_, end, err := r.kafka.Bounds(r.t.Context(), spec.Name, p)
			if err != nil {
				r.t.Fatal(err)
			}
			n += end
		}
	}
	return n
}

// gauge reads a gauge of the role that was started last.
func (r *rig) gauge(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// setTopic changes a setting of a topic, as somebody with other tools might.
func (r *rig) setTopic(ctx context.Context, topic, key, value string) {
	r.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = key, &value
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	r.request(ctx, req)
}

// request sends a request of any kind to the broker.
func (r *rig) request(ctx context.Context, req kmsg.Request) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.world.Brokers()...), kgo.Dialer(r.world.Dial))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Request(ctx, req); err != nil {
		r.t.Fatal(err)
	}
}

// count counts the requests of a kind that the broker gets.
func (r *rig) count(key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	r.world.Broker.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.world.Broker.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
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
	o := r.orderOf(id, time.Now(), category)
	if publish {
		if err := r.shop.Publish(r.t.Context(), o); err != nil {
			r.t.Fatal(err)
		}
	}
	return o
}

// orderOf creates an order with its creation time, and does not publish it.
func (r *rig) orderOf(id string, created time.Time, category string) orderclose.Order {
	r.t.Helper()
	o := r.shop.Producer.Order(id, created, category)
	if err := r.world.Store.CreateOrder(r.t.Context(), o, []store.Item{{SKU: scenario.SKU(0), Quantity: 2}}); err != nil {
		r.t.Fatal(err)
	}
	return o
}

// useOutbox has the shop schedule half of its orders with their own transactions.
func (r *rig) useOutbox() {
	r.t.Helper()
	var err error
	if r.shop.Outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite, MaxDelay: r.cfg.MaxDelay}); err != nil {
		r.t.Fatal(err)
	}
}

// deadLetters counts the dead letters by cause, and requires coordinates.
func (r *rig) deadLetters(ctx context.Context) map[string]int {
	r.t.Helper()
	f, err := r.kafka.Read(ctx, orderclose.Position{Topic: r.cfg.Topics.DeadLetter})
	if err != nil {
		r.t.Fatal(err)
	}
	causes := map[string]int{}
	for _, record := range f.Records {
		m, err := record.Message()
		if err != nil {
			r.t.Fatal(err)
		}
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

// restartAtRandom stops a role now and then, for a while, until stop.
func (r *rig) restartAtRandom(random *rand.Rand, stop <-chan struct{}) {
	r.disturbed = true
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
