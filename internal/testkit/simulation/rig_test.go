package simulation

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// picking are the roles that put records into buckets.
var picking = []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Outbox}

// picks reports whether a role puts records into buckets.
func picks(role pipeline.Role) bool { return slices.Contains(picking, role) }

// rig has embedded servers with the topics, a shop, and parts that can be stopped and started like processes.
type rig struct {
	t      *testing.T
	cfg    *config.Config
	world  *pipelinetest.Servers
	shop   *scenario.Shop
	own    clients.Clients // of the rig: kafka and db
	kafka  *kafka.Cluster
	db     *store.Store
	logger *slog.Logger
	stops  map[pipeline.Role]func()

	registry      *prometheus.Registry // of the role that was started last
	relayAhead    time.Duration        // by how much the relay's clock is ahead
	producerAhead time.Duration        // by how much the producer's clock is ahead
	services      http.RoundTripper    // reaches the user's services
	network       *network             // to the brokers, of roles that are started from now on; nil: it is undisturbed
	store         closer.Store         // the program's own; nil: the database's
	onHang        func(why string)     // of all roles; nil: the process exits
	disturbed     bool                 // a part was stopped or not running while orders were due
	deadCauses    []string             // the causes that dead letters may have
	oneClock      bool                 // the database's clock is right
	orderly       bool                 // all parts were stopped while the broker answered
	commits       *commitLog
	file          string // the topics.yaml that cfg was read from; "" for none
	apps          map[pipeline.Role]*pipeline.App
	mostAppends   int                // replaces maxAppends, if not 0
	unlisted      orderclose.Buckets // buckets with records that are not in cfg
}

// hookedStore is a database whose closes call on first. Its error is the answer.
type hookedStore struct {
	*store.Store
	on func(ctx context.Context, requests []orderclose.CloseRequest) error
}

func (h hookedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if err := h.on(ctx, requests); err != nil {
		return nil, err
	}
	return h.Store.CloseOrders(ctx, path, requests)
}

// missed returns how many orders compensators have counted as missed by the pipeline.
func missed(t *testing.T, db *store.Store, cfg *config.Config) (n int64) {
	t.Helper()
	for _, h := range must.Get(db.SweepHours(context.Background(), cfg.Topics.Close, time.Time{}, 10_000))(t) {
		n += h.Missed
	}
	return n
}

const (
	// shutdownTime bounds the stop of a part.
	shutdownTime = 10 * time.Second
	// relayTime bounds the time that relays need to forward what is due: a restart, and the session timeout of another relay.
	relayTime = 30 * time.Second
)

// simulate runs test under synctest with a rig whose parts are not started, in parallel with other tests.
func simulate(t *testing.T, cfg *config.Config, test func(ctx context.Context, r *rig)) {
	t.Helper()
	simulateBehind(t, cfg, 0, test)
}

// simulateBehind is simulate with a database whose clock is behind.
func simulateBehind(t *testing.T, cfg *config.Config, behind time.Duration, test func(ctx context.Context, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg, behind)
		r.oneClock = behind == 0
		defer r.close()
		test(t.Context(), r)
	})
}

func newRig(t *testing.T, cfg *config.Config, behind time.Duration) *rig {
	return newRigOn(t, cfg, pipelinetest.Options{Now: func() time.Time { return time.Now().Add(-behind) }})
}

// newRigOn returns a rig. Its servers have the options o, except InBubble and Logger.
func newRigOn(t *testing.T, cfg *config.Config, o pipelinetest.Options) *rig {
	r := &rig{
		t: t, cfg: cfg, stops: map[pipeline.Role]func(){}, apps: map[pipeline.Role]*pipeline.App{}, logger: slog.New(slog.DiscardHandler), oneClock: o.Now == nil,
	}
	var err error
	o.InBubble, o.Logger = true, r.logger
	if r.world, err = pipelinetest.Start(o); err != nil {
		t.Fatal(err)
	}
	r.commits = recordCommits(r.world)
	c := must.Get(r.world.Connect("checkout"))(t)
	r.own = c
	r.kafka, r.db = r.own.Kafka, r.own.Store
	if _, left, err := r.kafka.Apply(t.Context(), topics.Specs(cfg)); err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	p := must.Get(producer.New(producer.Options{
		Appender: r.kafka.Appender, Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, MaxDelay: cfg.MaxDelay,
		Now: func() time.Time { return time.Now().Add(r.producerAhead) },
	}))(t)
	r.shop = &scenario.Shop{Orders: scenario.OrdersOf(r.db), Producer: p}
	must.Do(t, r.shop.Stock(t.Context(), 20))
	return r
}

func (r *rig) close() {
	for role := range r.stops {
		r.stop(role)
	}
	r.own.Close()
	r.world.Close()
}

// start starts a role as a process.
func (r *rig) start(role pipeline.Role) { r.startAs(role, role) }

// connect returns clients of all servers for a process.
func (r *rig) connect(name string) clients.Clients {
	r.t.Helper()
	c := must.Get(r.world.Connect(name))(r.t)
	if r.network != nil {
		c.Kafka.Close()
		c.Kafka = must.Get(kafka.New(kafka.Options{Brokers: r.world.Brokers(), ClientID: name, Dial: r.network.Dial, PoisonFreedMemory: true, Logger: r.logger}))(r.t)
	}
	return c
}

// startAs starts a role under a name, so that a role can have several processes. Its options may be changed.
func (r *rig) startAs(name, role pipeline.Role, changes ...func(o *pipeline.Options)) {
	c := r.connect(string(role))
	if role == pipeline.Relay {
		c.Store = nil // a relay reaches no database
	}
	r.registry = prometheus.NewRegistry()
	o := pipeline.Options{
		Config: r.cfg, Connections: c, Logger: r.logger, Registerer: r.registry,
		Services: r.services, Secrets: pipeline.Secrets{HTTP: serviceSecrets, Payment: serviceSecrets},
		Now: func() time.Time { return time.Now().Add(r.relayAhead) }, TopicsFile: r.file,
		Store: r.store, OnHang: r.onHang,
	}
	for _, change := range changes {
		change(&o)
	}
	a := must.Get(pipeline.New(o))(r.t)
	r.apps[name] = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, role) }()
	r.stops[name] = func() {
		cancel()
		began := time.Now()
		err := <-done
		expect.That(r.t, err == nil, "%s: %v", role, err)
		expect.AtMost(r.t, time.Since(began), shutdownTime, "the time that %s took to stop", role)
		c.Close()
	}
}

func (r *rig) stop(role pipeline.Role) {
	r.stops[role]()
	delete(r.stops, role)
}

func (r *rig) startAll() {
	for _, role := range pipeline.AllRoles() {
		r.start(role)
	}
}

// create creates or changes topics, as topics apply does.
func (r *rig) create(specs []kafka.TopicSpec) {
	r.t.Helper()
	_, _, err := r.kafka.Apply(r.t.Context(), specs)
	must.Do(r.t, err)
}

// startStable starts all roles, and waits until all groups are stable.
func (r *rig) startStable() {
	r.startAll()
	time.Sleep(10 * time.Second)
}

// check runs the checker and reports its violations. Orders due before openAfter must not be open.
func (r *rig) check(openAfter time.Time) *checker.Verdict {
	r.t.Helper()
	v := r.verdict(openAfter)
	for _, broken := range v.Violations {
		r.t.Error(broken)
	}
	return v
}

// verdict runs the checker and leaves its violations to the caller.
func (r *rig) verdict(openAfter time.Time) *checker.Verdict {
	r.t.Helper()
	_, dispatching := r.stops[pipeline.Outbox]
	for range 50 { // until the events of recent closes are published
		events, err := r.db.Backlog(r.t.Context(), wire.EventOutbox)
		schedules, err2 := r.db.Backlog(r.t.Context(), wire.ScheduleOutbox)
		if !dispatching || err == nil && err2 == nil && events.Rows+schedules.Rows == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var relayed time.Time
	if _, relaying := r.stops[pipeline.Relay]; relaying {
		relayed = time.Now().Add(-relayTime)
	}
	e := scenario.ExpectOf(r.cfg, r.shop)
	for _, b := range r.unlisted {
		e.Delays[b.Topic] = r.cfg.RelayGroup(b)
	}
	e.OpenAfter, e.DeadLetters, e.OutboxEmpty, e.Calm, e.MaxAppends = openAfter, r.deadCauses, dispatching, !r.disturbed, r.maxAppends()
	e.Commits, e.OneClock, e.RelayedUntil, e.Stopped, e.Missed = r.commits.all(), r.oneClock, relayed, r.orderly, missed(r.t, r.db, r.cfg)
	return must.Get(checker.Check(r.t.Context(), checker.Servers{DB: r.world.DB(), Brokers: r.world.Brokers(), Dial: r.world.Dial}, e))(r.t)
}

// maxAppends bounds the appends of one order to delay topics. It is the longest walk of any delay up to the longest in the configuration, because a
// stopped relay changes the remaining delay, and two. An order may be published twice, and be scheduled once more after the first start.
func (r *rig) maxAppends() int {
	if r.mostAppends > 0 {
		return r.mostAppends
	}
	longest := r.cfg.Delays.Default
	for _, d := range r.cfg.Delays.ByCategory {
		longest = max(longest, d)
	}
	return 3 * (longestWalk(r.cfg.Buckets, longest) + 2)
}

// appends returns the number of records in all topics.
func (r *rig) appends() (n int64) {
	r.t.Helper()
	for _, spec := range topics.Specs(r.cfg) {
		n += r.inTopic(spec.Name)
	}
	return n
}

// gauge reads a gauge of the role that was started last.
func (r *rig) gauge(name string) float64 {
	r.t.Helper()
	families := must.Get(r.registry.Gather())(r.t)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// setTopic changes a setting of a topic, as a person may with other tools.
func (r *rig) setTopic(ctx context.Context, topic, key, value string) {
	r.t.Helper()
	r.ask(func(c *kadm.Client) error {
		_, err := c.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
		return err
	})
}

// ask sends requests to the broker.
func (r *rig) ask(send func(*kadm.Client) error) {
	r.t.Helper()
	client := must.Get(kadm.NewOptClient(kgo.SeedBrokers(r.world.Brokers()...), kgo.Dialer(r.world.Dial)))(r.t)
	defer client.Close()
	must.Do(r.t, send(client))
}

// count counts the requests of a kind that the broker receives from now on.
func (r *rig) count(key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	r.world.Broker.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.world.Broker.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
}

// testConfig returns the default configuration with two partitions per topic, the buckets up to half an hour, and a sweep
// each ten minutes. An hour of the whole pipeline takes two seconds of a processor.
func testConfig() *config.Config {
	c := config.Default()
	c.Partitions, c.Buckets = 2, c.Buckets[:4]
	c.Compensator.Period = 10 * time.Minute
	return c
}

// missBound is how long an order may stay open that the pipeline has missed: the promise of the loop for few orders, with a holder that was killed, and
// the outage that a process needs to notice.
const missBound = 30*time.Second + time.Minute

// order creates an order of a category, and publishes it if publish is set.
func (r *rig) order(id, category string, publish bool) orderclose.Order {
	r.t.Helper()
	o := r.orderOf(id, time.Now(), category)
	if publish {
		must.Do(r.t, r.shop.Publish(r.t.Context(), o))
	}
	return o
}

// orderOf creates an order with a creation time, and does not publish it.
func (r *rig) orderOf(id string, created time.Time, category string) orderclose.Order {
	r.t.Helper()
	o := r.shop.Producer.Order(id, created, category)
	must.Do(r.t, r.shop.Orders.CreateOrder(r.t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 2}}))
	return o
}

// useOutbox makes the shop schedule half of its orders in their own transactions.
func (r *rig) useOutbox() {
	r.t.Helper()
	var err error
	if r.shop.Outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite, MaxDelay: r.cfg.MaxDelay}); err != nil {
		r.t.Fatal(err)
	}
}

// deadLetters counts the dead letters by cause, and requires that they have coordinates.
func (r *rig) deadLetters(ctx context.Context) map[string]int {
	r.t.Helper()
	f := must.Get(r.kafka.Read(ctx, wire.Position{Topic: r.cfg.Topics.DeadLetter}))(r.t)
	causes := map[string]int{}
	for _, record := range f.Records {
		m := must.Get(record.Message())(r.t)
		cause, _ := m.Header(wire.HeaderCause)
		causes[cause]++
		for _, h := range []string{wire.HeaderStage, wire.HeaderDetail, wire.HeaderSourceTopic, wire.HeaderSourcePartition, wire.HeaderSourceOffset} {
			v, _ := m.Header(h)
			expect.That(r.t, v != "", "dead letter %s has no %s", cause, h)
		}
	}
	return causes
}

// publish appends a record to a topic.
func (r *rig) publish(ctx context.Context, topic string, record wire.Record) {
	r.t.Helper()
	m := must.Get(record.Encode())(r.t)
	must.Do(r.t, r.kafka.Appender.Append(ctx, topic, m))
}

// startPipeline starts all parts but the compensator, which would close orders that the pipeline misses.
func (r *rig) startPipeline() {
	for _, role := range []pipeline.Role{pipeline.Relay, pipeline.Closer, pipeline.Outbox} {
		r.start(role)
	}
}
