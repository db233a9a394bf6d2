package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a console beside an embedded Kafka and a database.
type rig struct {
	t      *testing.T
	cfg    *config.Config
	broker *kfake.Cluster
	kafka  *kafka.Cluster
	store  *store.Store
	c      *Console
	url    string
	user   string // who sends the requests
	cookie string // of the requests; empty: none
}

// newRig lets the test run in parallel with others: most of them wait.
func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	t.Parallel()
	broker := must.Get(kfake.NewCluster(kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})))(t)
	t.Cleanup(broker.Close)
	r := &rig{t: t, broker: broker}
	r.cfg = must.Get(config.Parse("topics.yaml", []byte("buckets: [1m, 1h]\npartitions: 2\ndelays: {categories: {ticket: 7m}}\n")))(t)
	r.kafka = must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	t.Cleanup(r.kafka.Close)
	_, _, err := r.kafka.Apply(t.Context(), topics.Specs(r.cfg))
	must.That(t, err == nil, "%v", err)
	r.store = must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	t.Cleanup(func() { _ = r.store.Close() })
	must.Do(t, r.store.Migrate(t.Context()))
	o := Options{
		Config: func() *config.Config { return r.cfg }, Pipeline: ops.Pipeline{Kafka: r.kafka, Store: r.store}, Version: "v0",
		Settings: environ.Console{
			Listen: environ.DefaultConsoleListen, UserHeader: "X-User", Operators: []string{"ann"},
			Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		},
	}
	for _, f := range change {
		f(&o)
	}
	r.c = must.Get(New(o))(t)
	server := httptest.NewServer(r.c.Handler())
	t.Cleanup(func() {
		r.c.Close()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	r.url, r.user = server.URL+r.c.o.Settings.BasePath, "ann"
	return r
}

// do sends a request and returns the answer with its body.
func (r *rig) do(method, path, language string, form url.Values) (*http.Response, string) {
	r.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req := must.Get(http.NewRequestWithContext(r.t.Context(), method, r.url+path, body))(r.t)
	req.Header.Set("Accept-Language", language)
	req.Header.Set("X-User", r.user)
	if r.cookie != "" {
		req.Header.Set("Cookie", r.cookie)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res := must.Get((&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req))(r.t)
	defer res.Body.Close()
	data := must.Get(io.ReadAll(res.Body))(r.t)
	return res, string(data)
}

// open returns a page, which must exist.
func (r *rig) open(path string) string {
	r.t.Helper()
	res, body := r.do(http.MethodGet, path, "en", nil)
	must.That(r.t, res.StatusCode == http.StatusOK, "%s: %s\n%s", path, res.Status, body)
	return body
}

// addOrder creates an order in the database and puts its record into a topic.
func (r *rig) addOrder(id, topic string, due time.Time) {
	r.t.Helper()
	o := orderclose.Order{ID: id, Category: "ticket", CreatedAt: due.Add(-time.Hour), Due: due}
	must.Do(r.t, scenario.OrdersOf(r.store).CreateOrder(r.t.Context(), o, []shopdb.Item{{SKU: "ink", Quantity: 2}}))
	m := must.Get(wire.Record{Order: o, Release: due}.Encode())(r.t)
	must.Get(r.kafka.Append(r.t.Context(), topic, kafka.PartitionOf([]byte(id), 2), []wire.Message{m}))(r.t)
}

func (r *rig) putStock(sku string) {
	r.t.Helper()
	must.Do(r.t, scenario.OrdersOf(r.store).PutStock(r.t.Context(), sku, 1000))
}

func contains(t *testing.T, body string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		expect.That(t, strings.Contains(body, want), "the page lacks %q:\n%s", want, body)
	}
}

func TestNow_SaysWhatWaitsAndWhetherAllIsWell(t *testing.T) {
	r := newRig(t)
	r.putStock("ink")
	r.addOrder("a", "delay_1h", time.Now().Add(5*time.Minute))
	page := r.open("/")
	contains(t, page, `<html lang="en">`, `data-state="well"`, `<tr data-topic="delay_1h"`,
		`data-live="/live"`)

	r.addOrder("b", "delay_1h", time.Now().Add(-time.Minute))
	ops.Forget(r.c.asks, health.KafkaCheck)
	page = r.open("/")
	contains(t, page, `data-state="urgent"`, `data-kind="records_overdue"`, "start one with orderclose run relay",
		`<a href="/runbook#records-do-not-leave-a-delay-topic">`, `<pre class="commands" lang="en">orderclose status`)

	res, page := r.do(http.MethodGet, "/", "zh-CN,zh;q=0.9,en;q=0.5", nil)
	contains(t, page, `<html lang="zh">`, "订单关闭已经或即将延迟")
	expect.Equal(t, res.Header.Get("Content-Language"), "zh", "Content-Language")
}

// Kafka cannot show a closer that acknowledges records and closes nothing: only the database can.
func TestNow_CountsTheOverdueOrdersOfTheDatabase(t *testing.T) {
	r := newRig(t)
	contains(t, r.open("/"), `data-state="well"`, `<p id="overdue" data-orders="0">`, "<strong>0</strong>")
	due := time.Now().Add(-time.Minute)
	for i := range 14 {
		o := orderclose.Order{ID: fmt.Sprint(i), Category: []string{"ticket", "gift"}[i/12], CreatedAt: due.Add(-time.Hour), Due: due}
		must.Do(t, scenario.OrdersOf(r.store).CreateOrder(t.Context(), o, nil))
	}
	ops.Forget(r.c.asks, ops.OverdueCheck)
	page := r.open("/")
	expect.That(t, strings.Index(page, `id="overdue"`) <= strings.Index(page, `id="problems"`), "the number of overdue orders stands below the problems")
	contains(t, page, `data-state="urgent"`, `data-kind="orders_overdue"`, "14 orders wait", "no record is overdue in Kafka",
		"/runbook#orders-are-overdue-in-the-database",
		`<p id="overdue" data-orders="14">`, "<span>default: 2</span>", "<span>ticket: 12</span>")
	must.Get(r.store.Pause(t.Context(), "ticket", time.Hour, "INC-1", false))(t)
	ops.Forget(r.c.asks, ops.OverdueCheck)
	ops.Forget(r.c.asks, ops.PausesCheck)
	contains(t, r.open("/"), `data-state="today"`, `data-kind="closing_paused"`, `<p id="overdue" data-orders="2">`, "12 more wait because closing is paused")
}

func TestNow_ShowsWhatWasKnownWhileAServerIsAway(t *testing.T) {
	r := newRig(t)
	r.open("/")
	r.broker.Close()
	_ = r.store.Close()
	ops.Forget(r.c.asks, health.KafkaCheck)
	ops.Forget(r.c.asks, ops.OverdueCheck)
	for range 50 { // a fetch that fails takes longer than a page waits
		if strings.Contains(r.open("/"), "Kafka has not answered since") {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	contains(t, r.open("/"), `data-state="unknown"`, "Kafka has not answered since", "The database has not answered since", "What is shown here was read at",
		`<tr data-topic="delay_1h"`)
}

func TestOrder_ShowsTheTimeline(t *testing.T) {
	r := newRig(t)
	r.putStock("ink")
	due := time.Now().Add(-time.Minute)
	r.addOrder("closed", "order-close", due)
	must.Get(r.store.CloseOrders(context.Background(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "closed"}}))(t)
	res, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {"closed"}})
	contains(t, page, "handed to the closer", "closed by pipeline", "quantity 2 of SKU ink came back", `id="timeline"`)
	expect.Equal(t, res.StatusCode, http.StatusOK, "status")
	res, page = r.do(http.MethodPost, "/order", "en", url.Values{"id": {"nobody"}})
	contains(t, page, "This order was found nowhere", "order-close:")
	expect.Equal(t, res.StatusCode, http.StatusNotFound, "status")
}

// The page of an order says which rule matches now, and whether the row was written by it.
func TestOrder_ShowsTheRuleAndWhatItWouldGiveNow(t *testing.T) {
	r := newRig(t)
	r.putStock("ink")
	r.addOrder("o", "order-close", time.Now().Add(30*time.Minute))
	show := func(rules string) string {
		r.cfg = must.Get(config.Parse("topics.yaml", []byte("buckets: [1m, 1h]\npartitions: 2\ndelays:\n  categories: {ticket: 7m}\n"+rules)))(t)
		_, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {"o"}})
		return page
	}
	contains(t, show(""), "No rule matches; the delay is that of <code>delays.")
	page := show("  rules:\n  - {match: {attributes: {pay: bank}}, after: never}\n  - {match: {}, after: 26h, grace: 5m}\n")
	contains(t, page, "<code>delays.rules[1]</code>, line 7", "every order: after 26h grace 5m", `id="order-differs"`,
		"If the order was written now, it would be due at", "its row does not have all attributes")
	contains(t, show("  rules:\n  - {match: {}, after: never}\n"), "If the order was written now, it would never be closed.")
	must.Get(r.store.DB().Exec("UPDATE orders SET expire_at = ?", orderclose.NeverDue.UnixMilli()))(t)
	page = show("  rules:\n  - {match: {}, after: never}\n")
	contains(t, page, "<dd>never</dd>", "unpaid, and never closed")
	expect.That(t, !strings.Contains(page, "order-differs"), "the row is what the rule gives, and the page says that they differ")

	show("  rules:\n  - {match: {category: ticket}, after: 3m}\n  - {match: {}, after: never}\n")
	contains(t, r.open("/delays"), "<code>delays.rules[0]</code>", `<ul id="rules"`, "every order: never")
}

func TestPages_ShowHostileTextHarmless(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a\u202eb", "a\x1b[31m\r\nSet-Cookie: x",
		strings.Repeat("x", 60_000), "\xff\xfe", "{{.}}"} {
		res, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {id}})
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.Contains(page, "\u202e") || strings.Contains(page, "\x1b") ||
			len(page) > 20_000 || res.Header.Get("Set-Cookie") != "" {
			t.Errorf("%.40q: %s, %d bytes\n%.3000s", id, res.Status, len(page), page)
		}
	}
	if res, _ := r.do(http.MethodPost, "/order", "en", url.Values{"id": {strings.Repeat("x", 2<<20)}}); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large form: %s", res.Status)
	}
}

func TestDelays_ShowsTheDelaysAndTheTopics(t *testing.T) {
	contains(t, newRig(t).open("/delays"), `<bdi>ticket</bdi></th><td>7m</td>`, "<td>30m</td>", "All 5 topics match topics.yaml.")
}

func TestLive_IsThePartThatChanges(t *testing.T) {
	r := newRig(t)
	page := r.open("/live")
	contains(t, page, `data-state="well"`)
	expect.That(t, !strings.Contains(page, "<html"), "it is a whole page:\n%s", page)
	r.putStock("ink")
	r.addOrder("late", "delay_1h", time.Now().Add(-time.Minute))
	ops.Forget(r.c.asks, health.KafkaCheck)
	contains(t, r.open("/live"), `data-state="urgent"`)
}

func TestBasePath_IsInEveryLink(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Settings.BasePath = "/tools/orderclose" })
	for _, path := range []string{"/", "/order", "/delays"} {
		page := r.open(path)
		for _, attribute := range []string{`href="/`, `src="/`, `action="/`, `data-live="/`} {
			rest := strings.ReplaceAll(page, attribute+"tools/orderclose/", "")
			expect.That(t, !strings.Contains(rest, attribute), "%s has %s without the base path:\n%s", path, attribute, page)
		}
	}
	res, _ := r.do(http.MethodPost, "/language", "en", url.Values{"lang": {"zh"}, "path": {"/delays"}})
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/tools/orderclose/delays" || res.Cookies()[0].Path != "/tools/orderclose" {
		t.Errorf("%s, %v", res.Status, res.Header)
	}
	for _, path := range []string{"//evil.example", `/\evil.example`, "https://evil.example", "", "/order?id=x"} {
		if res, _ := r.do(http.MethodPost, "/language", "en", url.Values{"lang": {"zh"}, "path": {path}}); res.Header.Get("Location") != "/tools/orderclose/" {
			t.Errorf("%q leads to %q", path, res.Header.Get("Location"))
		}
	}
}

func TestOrder_ThirdSearchAtOnceIsToldToComeAgain(t *testing.T) {
	r := newRig(t)
	r.c.histories <- struct{}{}
	r.c.histories <- struct{}{}
	res, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {"a"}})
	expect.That(t, res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "" && strings.Contains(page, "other searches"), "%s\n%s",
		res.Status, page)
}

func TestNotFound(t *testing.T) {
	r := newRig(t)
	res, page := r.do(http.MethodGet, "/nothing", "en", nil)
	expect.That(t, res.StatusCode == http.StatusNotFound && strings.Contains(page, "no such page"), "%s\n%s", res.Status, page)
}

// A form that cannot be read is refused whole, in place of being read as far as it goes.
func TestConsole_RefusesABrokenForm(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/order", "/dead-letters", "/actions", "/language"} {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, strings.NewReader("kind=resume&id=%zz")))(t)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-User", r.user)
		res := must.Get(http.DefaultClient.Do(req))(t)
		res.Body.Close()
		expect.Equal(t, res.StatusCode, http.StatusBadRequest, "%s answers %s", path, res.Status)
	}
}

// A request without a user is refused by a page in the language of the browser, which has no menu.
func TestConsole_RefusesByAPage(t *testing.T) {
	r := newRig(t)
	r.user = ""
	res, body := r.do(http.MethodGet, "/", "en", nil)
	expect.That(t, res.StatusCode == http.StatusForbidden && strings.Contains(body, phrase("en", "refusal.no_user")) && !strings.Contains(body, "<nav"),
		"the page answers %s\n%s", res.Status, body)
}

func TestDelays_SayThatTheyAreTheLastValidOnes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Broken = func() error { return errors.New("line 3") } })
	contains(t, r.open("/delays"), "The last valid ones", "line 3")
}
