package simulation

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

const (
	chaosSKUs = 3
	// standsAtMost is how long a partition may stand still after all faults have ended.
	standsAtMost = 2 * time.Minute
)

// chaosWorld plays a plan.
type chaosWorld struct {
	plan    *plan
	began   time.Time
	ctx     context.Context // of the shop and of repairs: ends with the world
	faulty  context.Context // ends when all faults must have ended
	logger  *slog.Logger
	servers *pipelinetest.Servers
	db      *store.Store
	dbfault *testkit.Faults
	commits *commitLog
	file    *chaosFile   // topics.yaml; nil: it is never reloaded
	service *shopService // nil: there is none
	damaged atomic.Int64 // the number of answers with a damaged batch
	replays atomic.Int64 // replays of the close topic, including incomplete ones

	network  *network // the network of the checkout
	kafka    *kafka.Cluster
	producer *producer.Producer
	outbox   *producer.Outbox
	shop     scenario.Persistent

	running sync.WaitGroup // processes
	errands sync.WaitGroup // of the shop
	events  sync.WaitGroup // in progress

	brokerAhead [3]atomic.Int64 // by node
	dbAhead     atomic.Int64
	shopAhead   atomic.Int64

	// openOrders is the number of orders whose event is not over: the checkout still creates, pays, cancels or moves the order.
	openOrders atomic.Int64

	mu         sync.Mutex
	cfg        *config.Config
	processes  map[string]*process
	clocks     map[string]*atomic.Int64
	tenures    []*tenure
	launched   int
	networks   []*network     // of all processes, past and present
	away       map[string]int // by address: how many events disconnect the broker
	paid       []string
	published  []string
	added      []string
	deadCauses []string // the causes that dead letters may have
	violations []violation
	// eventsDeleted is when the topic of events was last deleted.
	eventsDeleted time.Time
	dbFaults      []testkit.Fault // faults of the database that strike at present
}

// violation is a broken promise.
type violation struct {
	Kind string // broken, late, hops, repeats, crash, hang, or harness: a failure of the simulation itself
	Text string
}

func (w *chaosWorld) violation(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, violation{kind, fmt.Sprintf(format, args...)})
}

// config returns the present configuration. It is read-only.
func (w *chaosWorld) config() *config.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cfg
}

// chaosConfig returns a configuration with short delays.
func chaosConfig(p *plan) *config.Config {
	cfg := config.Default()
	cfg.Partitions = p.Partitions
	cfg.Buckets = orderclose.Buckets{{Topic: "delay_2s", Length: 2 * time.Second}, {Topic: "delay_10s", Length: 10 * time.Second}}
	cfg.Delays = chaosDelays
	cfg.Compensator.Period = 40 * time.Second
	if !p.Sweeps {
		cfg.Compensator.Period = 24 * time.Hour
	}
	p.configure(cfg)
	return cfg
}

// playPlan plays a plan under synctest and returns the result.
func playPlan(t *testing.T, p *plan) *result {
	w := &chaosWorld{
		plan: p, began: time.Now(), logger: chaosLogger(), cfg: chaosConfig(p),
		processes: map[string]*process{}, clocks: map[string]*atomic.Int64{}, away: map[string]int{}, dbfault: testkit.NewFaults(p.Seed),
	}
	var end, over context.CancelFunc
	w.ctx, end = context.WithCancel(t.Context())
	w.faulty, over = context.WithTimeout(w.ctx, window)
	defer end()
	defer over()
	if p.has("reload") {
		w.useFile(t)
	}
	must.Do(t, w.build())
	defer w.servers.Close()
	w.errands.Go(w.expireSilentMembers)
	w.launchAll()
	for _, e := range p.Events {
		if !wait(w.ctx, time.Until(w.began.Add(e.At))) {
			break
		}
		if e.Kind == "order" {
			w.openOrders.Add(1)
			w.errands.Go(func() {
				defer w.openOrders.Add(-1)
				w.order(e)
			})
			continue
		}
		w.events.Go(func() { kinds[e.Kind].play(w, e) })
	}
	w.events.Wait()
	r := &result{Seed: p.Seed}
	w.settle(r)
	end()
	w.errands.Wait()
	w.producer.Close()
	w.kafka.Close()
	for _, n := range w.networks {
		n.cut() // ends half-open connections
	}
	w.service.stop()
	time.Sleep(5 * time.Second) // until delayed operations have ended
	return r
}

// build starts the servers, creates the topics and builds the checkout.
func (w *chaosWorld) build() (err error) {
	for node, apart := range w.plan.Apart {
		w.brokerAhead[node].Store(int64(apart))
	}
	servers := pipelinetest.Options{
		InBubble: true, Logger: w.logger, Brokers: w.plan.Brokers,
		Now:     func() time.Time { return time.Now().Add(time.Duration(w.dbAhead.Load())) },
		Through: func(c driver.Connector) driver.Connector { return w.dbfault.Wrap(c) },
	}
	if w.plan.has("broker-clock") || !w.plan.oneBrokerClock() {
		servers.BrokerClock = func(node int32) time.Time {
			return time.Now().Add(time.Duration(w.brokerAhead[max(node, 0)].Load()))
		}
	}
	w.servers, err = pipelinetest.Start(servers)
	if err != nil {
		return err
	}
	c, err := w.servers.Connect("world")
	if err != nil {
		return err
	}
	defer c.Close()
	w.db = c.Store
	if w.plan.has("service") {
		if err := w.serveShop(); err != nil {
			return err
		}
	}
	w.commits = recordCommits(w.servers)
	for _, spec := range topics.Specs(w.cfg) {
		if err := w.createTopic(spec); err != nil {
			return err
		}
	}
	w.admin(func(c *kafka.Cluster) error { return c.Adopt(w.ctx, topics.Specs(w.cfg)) })
	w.network = w.newNetwork()
	if w.kafka, err = kafka.New(kafka.Options{Brokers: w.servers.Brokers(), ClientID: "checkout", Dial: w.network.Dial, Logger: w.logger}); err != nil {
		return err
	}
	o := producer.Options{
		Appender: w.kafka.Appender, TopicsFile: w.filePath(),
		Now: func() time.Time { return time.Now().Add(time.Duration(w.shopAhead.Load())) },
	}
	if w.file == nil {
		o.Buckets, o.CloseTopic, o.Delays, o.MaxDelay = w.cfg.Buckets, w.cfg.Topics.Close, w.cfg.Delays, w.cfg.MaxDelay
	}
	if w.producer, err = producer.New(o); err != nil {
		return err
	}
	w.outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite, MaxDelay: w.cfg.MaxDelay})
	w.shop = scenario.Persistent{Orders: scenario.OrdersOf(w.db)}
	for n := range chaosSKUs {
		if err == nil {
			err = w.shop.PutStock(w.ctx, scenario.SKU(n), chaosStock)
		}
	}
	return err
}

// chaosStock is the stock of each SKU at the beginning.
const chaosStock = 1_000_000

// createTopic creates a topic as topics apply would.
func (w *chaosWorld) createTopic(spec kafka.TopicSpec) error {
	settings := map[string]string{"retention.ms": fmt.Sprint(spec.Retention.Milliseconds())}
	if spec.BrokerTime {
		settings["message.timestamp.type"] = "LogAppendTime"
	}
	return w.servers.Broker.CreateTopic(spec.Name, int32(spec.Partitions), settings)
}

// oneBrokerClock reports whether the brokers' clocks agree permanently.
func (p *plan) oneBrokerClock() bool {
	return !slices.ContainsFunc(p.Apart, func(d time.Duration) bool { return d != 0 })
}

// hold waits for as long as an event lasts, at most until all faults must have ended.
func (w *chaosWorld) hold(e event) { wait(w.faulty, e.For) }

// closesInGo reports whether the program has a Store of its own, which no command has.
func (p *plan) closesInGo() bool { return p.Service == inGo && p.has("service") }

// has reports whether the plan has an event of one of these kinds.
func (p *plan) has(names ...string) bool {
	return slices.ContainsFunc(p.Events, func(e event) bool { return slices.Contains(names, e.Kind) })
}
