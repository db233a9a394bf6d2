package checkout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	startStock = 100_000
	group      = "checkout"
)

// rig is a shop with an HTTP client and embedded servers in a synctest bubble: half an hour takes a moment.
type rig struct {
	t        *testing.T
	cfg      *config.Config
	world    *pipelinetest.Servers
	clients  clients.Clients
	producer *producer.Producer
	shop     *checkout.Shop
	registry *prometheus.Registry
	client   *http.Client
	stops    []func()
}

// orders returns the orders of the shop, without its HTTP API.
func (r *rig) orders() *shopdb.Orders {
	return shopdb.New(shopdb.Options{DB: r.world.DB(), Dialect: producer.SQLite})
}

// inBubble runs a test with a shop; change may change its options. No part of the pipeline runs, and no process reads events.
func inBubble(t *testing.T, change func(*checkout.Options), test func(r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		defer func() {
			for _, stop := range slices.Backward(r.stops) {
				stop()
			}
		}()
		test(r)
	})
}

func newRig(t *testing.T, change func(*checkout.Options)) *rig {
	r := &rig{t: t, cfg: config.Default(), registry: prometheus.NewRegistry()}
	r.cfg.Partitions = 2
	r.cfg.Delays.Rules = []orderclose.Rule{{Match: orderclose.Match{Attributes: map[string][]string{"payment_method": {"bank_transfer"}}}, Never: true}}
	r.world = must.Get(pipelinetest.Start(pipelinetest.Options{InBubble: true, OnClose: []string{checkout.ReturnCoupons}}))(t)
	r.onStop(r.world.Close)
	connections, err := r.world.Connect("shop")
	r.must(err)
	r.clients = connections
	r.onStop(connections.Close)
	_, left, err := r.clients.Kafka.Apply(t.Context(), topics.Specs(r.cfg))
	r.must(errors.Join(err, checkout.CreateTables(t.Context(), r.world.DB(), producer.SQLite)))
	must.That(t, len(left) == 0, "%v", left)
	for _, sku := range []string{"ink", "nib"} {
		r.must(r.orders().PutStock(t.Context(), sku, startStock))
	}
	r.producer, err = producer.New(producer.Options{
		Appender: r.clients.Kafka.Appender, Buckets: r.cfg.Buckets, CloseTopic: r.cfg.Topics.Close, Delays: r.cfg.Delays, MaxDelay: r.cfg.MaxDelay,
	})
	r.must(err)
	r.shop = r.newShop(change)
	r.serve()
	return r
}

// newShop returns another Shop, like that of another process.
func (r *rig) newShop(change func(*checkout.Options)) *checkout.Shop {
	r.t.Helper()
	r.registry = prometheus.NewRegistry()
	o := checkout.Options{DB: r.world.DB(), Dialect: producer.SQLite, Producer: r.producer, Record: scenario.RecordOf(r.clients.Store), Redis: r.clients.Redis,
		Coupons: true, Metrics: checkout.NewCounters(r.registry)}
	if change != nil {
		change(&o)
	}
	if o.Closer == nil && !o.AskFirst {
		o.Closer = r.clients.Store
	}
	shop, err := checkout.New(o)
	r.must(err)
	return shop
}

func (r *rig) onStop(f func()) { r.stops = append(r.stops, f) }

func (r *rig) must(err error) {
	r.t.Helper()
	must.Do(r.t, err)
}

// serve serves the shop to the rig's client over connections in memory.
func (r *rig) serve() {
	listener := testkit.Listen()
	transport := listener.Transport()
	transport.MaxIdleConnsPerHost = 100
	r.client = &http.Client{Transport: transport}
	stop := testkit.Start(r.t, func(ctx context.Context) error { return checkout.Serve(ctx, listener, r.shop.Handler()) })
	r.onStop(func() {
		transport.CloseIdleConnections()
		stop()
	})
}

// start runs roles of the pipeline until stop is called or the test ends.
func (r *rig) start(roles ...pipeline.Role) (stop func()) {
	r.t.Helper()
	return r.apart("pipeline", func(ctx context.Context, a *pipeline.App) error { return a.Run(ctx, roles...) })
}

// read reads events like a separate process.
func (r *rig) read(shop *checkout.Shop) (stop func()) {
	r.t.Helper()
	return r.apart("reader", func(ctx context.Context, a *pipeline.App) error {
		return shop.ReadEvents(ctx, a, group, r.cfg.Topics.Events)
	})
}

// apart runs a function with connections of its own.
func (r *rig) apart(name string, run func(ctx context.Context, a *pipeline.App) error) (stop func()) {
	r.t.Helper()
	c, err := r.world.Connect(name)
	r.must(err)
	a, err := pipeline.New(pipeline.Options{Config: r.cfg, Connections: c})
	r.must(err)
	end := testkit.Start(r.t, func(ctx context.Context) error { return run(ctx, a) })
	stop = sync.OnceFunc(func() {
		end()
		c.Close()
	})
	r.onStop(stop)
	return stop
}

// publish appends values to the topic of events, each so many times.
func (r *rig) publish(times int, key string, values ...string) {
	r.t.Helper()
	p := kafka.PartitionOf([]byte(key), r.cfg.Partitions)
	for range times {
		for _, value := range values {
			_, err := r.clients.Kafka.Append(r.t.Context(), r.cfg.Topics.Events, p, []wire.Message{{Key: []byte(key), Value: []byte(value)}})
			r.must(err)
		}
	}
}

// response is the answer to a request.
type response struct {
	Code   int
	Header http.Header
	Body   string
}

// into decodes the body.
func (a response) into(t testing.TB, v any) {
	t.Helper()
	err := json.Unmarshal([]byte(a.Body), v)
	must.That(t, err == nil, "%d %q: %v", a.Code, a.Body, err)
}

// call sends a request; headers are names and values in turns.
func (r *rig) call(method, path, body string, headers ...string) response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://shop"+path, strings.NewReader(body))
	r.must(err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Errorf("%s %s: %v", method, path, err)
		return response{}
	}
	defer func() { _ = res.Body.Close() }()
	var b bytes.Buffer
	_, err = io.Copy(&b, res.Body)
	r.must(err)
	return response{res.StatusCode, res.Header, b.String()}
}

// want sends a request and checks the status of the answer.
func (r *rig) want(code int, method, path, body string, headers ...string) response {
	r.t.Helper()
	a := r.call(method, path, body, headers...)
	expect.Equal(r.t, a.Code, code, "%s %s %s: %s", method, path, body, a.Body)
	return a
}

// create creates an order of the category virtual, which is due in five minutes.
func (r *rig) create(id string) checkout.Order {
	r.t.Helper()
	var o checkout.Order
	r.want(201, "POST", "/orders", basket(id, 0)).into(r.t, &o)
	return o
}

func basket(id string, points int) string {
	return fmt.Sprintf(`{"id":%q,"customer":"ann","category":"virtual","points":%d,"items":[{"sku":"ink","quantity":2},{"sku":"nib","quantity":1}]}`, id, points)
}

func (r *rig) get(id string) checkout.Order {
	r.t.Helper()
	var o checkout.Order
	r.want(200, "GET", "/orders/"+id, "").into(r.t, &o)
	return o
}

// startPayment starts a payment and returns its id.
func (r *rig) startPayment(order string) string {
	r.t.Helper()
	var p checkout.StartedPayment
	r.want(201, "POST", "/orders/"+order+"/payments", "").into(r.t, &p)
	return p.PaymentID
}

// callback sends the payment provider's callback.
func (r *rig) callback(payment string) checkout.PaymentResult {
	r.t.Helper()
	var p checkout.PaymentResult
	r.want(200, "POST", "/payments/callback", fmt.Sprintf(`{"payment_id":%q}`, payment)).into(r.t, &p)
	return p
}

// pay pays an order.
func (r *rig) pay(order string) {
	r.t.Helper()
	p := r.callback(r.startPayment(order))
	expect.That(r.t, p.Outcome == "paid" && p.Order.Status == checkout.Paid, "payment of %s: %+v", order, p)
}

func (r *rig) do(order string, events ...checkout.Event) {
	r.t.Helper()
	for _, e := range events {
		if e == checkout.Pay {
			r.pay(order)
			continue
		}
		r.want(200, "POST", "/orders/"+order+"/"+string(e), "")
	}
}

// problem decodes the problem in an answer.
func problem(t testing.TB, a response) (p checkout.Problem) {
	t.Helper()
	ct := a.Header.Get("Content-Type")
	expect.That(t, ct == "application/problem+json", "content type %q of %s", ct, a.Body)
	a.into(t, &p)
	expect.That(t, p.Status == a.Code && p.Title != "" && p.Detail != "" && p.Hint != "" && p.Type != "", "an incomplete problem: %+v", p)
	return p
}

// rows returns the rows of a query as text.
func (r *rig) rows(query string, args ...any) []string {
	r.t.Helper()
	rows, err := r.world.DB().QueryContext(r.t.Context(), query, args...)
	r.must(err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	r.must(err)
	var all []string
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		r.must(rows.Scan(into...))
		all = append(all, strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
	}
	r.must(rows.Err())
	return all
}

// dump returns the whole database, for comparison.
func (r *rig) dump() map[string][]string {
	r.t.Helper()
	all := map[string][]string{}
	for _, table := range r.rows("SELECT name FROM sqlite_master WHERE type = 'table'") {
		all[table] = r.rows("SELECT * FROM " + table)
	}
	return all
}

func (r *rig) same(what string, got, want any) {
	r.t.Helper()
	expect.Same(r.t, got, want, "%s", what)
}

// metric reads a counter, summed over its series that have these values of labels.
func (r *rig) metric(name string, values ...string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				has := func(value string) bool {
					return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
				}
				if !slices.ContainsFunc(values, func(v string) bool { return !has(v) }) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// check runs the checker on the final state; no order that is due by now may be open.
func (r *rig) check(paid ...string) *checker.Verdict {
	r.t.Helper()
	e := scenario.ExpectOf(r.cfg, nil)
	e.Stock, e.Paid, e.OpenAfter, e.EventsTopic = map[string]int64{"ink": startStock, "nib": startStock}, paid, time.Now(), ""
	v, err := checker.Check(r.t.Context(), checker.Servers{DB: r.world.DB(), Brokers: r.world.Brokers(), Dial: r.world.Dial}, e)
	r.must(err)
	for _, broken := range v.Violations {
		r.t.Error(broken)
	}
	return v
}

// deadRedis returns a client without a server.
func deadRedis() redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody there") }})
}
