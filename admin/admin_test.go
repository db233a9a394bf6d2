package admin_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/admin"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// shop is embedded servers with topics and tables, and an Admin of them.
type shop struct {
	*testing.T
	*admin.Admin
	servers *pipelinetest.Servers
	clients clients.Clients
	cfg     *pipeline.Config
}

func newShop(t *testing.T) *shop {
	t.Helper()
	servers := must.Get(pipelinetest.Start(pipelinetest.Options{}))(t)
	t.Cleanup(servers.Close)
	cfg := must.Get(pipeline.Parse("shop.yaml", []byte("buckets: [1m, 1h]\npartitions: 2\ndelays: {categories: {tickets: 5m}}\n")))(t)
	app := must.Get(servers.App(t.Context(), pipeline.Options{Config: cfg}))(t)
	a := must.Get(admin.New(app, "ada@shop"))(t)
	return &shop{t, a, servers, app.Host().Connections, cfg}
}

// app returns an App of the shop's file.
func (s *shop) app(o pipeline.Options) *pipeline.App {
	o.Config = s.cfg
	return must.Get(pipeline.New(o))(s.T)
}

// own is a Store of the program.
type own struct{ closer.Store }

func (s *shop) exec(query string, args ...any) {
	s.Helper()
	must.Get(s.servers.DB().ExecContext(s.Context(), query, args...))(s.T)
}

// order adds an order with a status, such as 0 for unpaid, which is due so long from now.
func (s *shop) order(id, category string, status int, due time.Duration) {
	s.Helper()
	now := time.Now()
	s.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, ?, ?, ?, ?, 1)", id, category, status,
		now.Add(-time.Hour).UnixMilli(), now.Add(due).UnixMilli())
}

func (s *shop) late(id int64, order, payment string) {
	s.Helper()
	s.exec("INSERT INTO late_payments (id, order_id, payment_id, amount, currency, source, found_at) VALUES (?, ?, ?, 1999, 'EUR', 'callback', ?)", id, order,
		payment, time.Now().UnixMilli())
}

// record returns a record of an order that is due.
func (s *shop) record(id, category string) wire.Message {
	now := time.Now().Add(-time.Minute)
	return must.Get(wire.Record{Order: orderclose.Order{ID: id, Category: category, CreatedAt: now, Due: now}, Release: now}.Encode())(s.T)
}

func (s *shop) append(topic string, m wire.Message) {
	s.Helper()
	must.Get(s.clients.Kafka.Append(s.Context(), topic, 0, []wire.Message{m}))(s.T)
}

// in returns how many records are in a topic.
func (s *shop) in(topic string) (n int64) {
	for p := range s.cfg.Partitions {
		_, end, err := s.clients.Kafka.Bounds(s.Context(), topic, p)
		must.Do(s.T, err)
		n += end
	}
	return n
}

// actions returns the audit log, oldest first.
func (s *shop) actions() (all []string) {
	rows := must.Get(s.servers.DB().QueryContext(s.Context(), "SELECT who, action, result FROM operator_actions ORDER BY id"))(s.T)
	defer rows.Close()
	for rows.Next() {
		var who, action, result string
		must.Do(s.T, rows.Scan(&who, &action, &result))
		all = append(all, fmt.Sprint(who, ": ", action, ": ", result))
	}
	must.Do(s.T, rows.Err())
	return all
}

// logged checks that the audit log has these actions, each with some text.
func (s *shop) logged(want ...string) {
	s.Helper()
	got := s.actions()
	must.That(s.T, len(got) == len(want), "the audit log has %q", got)
	for i := range want {
		expect.That(s.T, strings.Contains(got[i], want[i]), "action %d is %q, want %q", i, got[i], want[i])
	}
}

func TestAdmin_PausesACategoryAndResumesIt(t *testing.T) {
	s := newShop(t)
	long := admin.PauseRequest{Category: "tickets", For: time.Hour, Reason: "the provider is down"}
	plan := must.Get(s.PlanPause(t.Context(), long))(t)
	expect.That(t, len(plan.On)+len(plan.Ended) == 0 && len(must.Get(s.Pauses(t.Context()))(t)) == 0, "a plan has paused: %+v", plan)
	ended := must.Get(s.Pause(t.Context(), long))(t)
	on := must.Get(s.Pauses(t.Context()))(t)
	must.That(t, len(ended) == 0 && len(on) == 1, "ended %+v, on %+v", ended, on)
	expect.That(t, on[0].Category == "tickets" && on[0].Reason == long.Reason && time.Until(on[0].Until).Round(time.Minute) == time.Hour, "%+v", on[0])

	short := admin.PauseRequest{Category: "tickets", For: time.Minute, Reason: "a test"}
	plan, err := s.PlanPause(t.Context(), short)
	expect.That(t, errors.Is(err, admin.ErrPausedUntilLater) && len(plan.On) == 1 && len(plan.Ended) == 1, "%+v, %v", plan, err)
	_, err = s.Pause(t.Context(), short)
	expect.That(t, errors.Is(err, admin.ErrPausedUntilLater) && strings.Contains(err.Error(), long.Reason), "%v", err)
	short.Replace = true
	ended = must.Get(must.Get(s.As("bob"))(t).Pause(t.Context(), short))(t)
	expect.That(t, len(ended) == 1 && ended[0].Reason == long.Reason, "ended %+v", ended)

	must.Get(s.Pause(t.Context(), admin.PauseRequest{For: time.Hour, Reason: "all"}))(t)
	ended = must.Get(s.Resume(t.Context(), "tickets"))(t)
	expect.That(t, len(ended) == 1 && len(must.Get(s.Pauses(t.Context()))(t)) == 1, "ended %+v", ended)
	expect.Equal(t, len(must.Get(s.Resume(t.Context(), ""))(t)), 1, "ended pauses")
	expect.Equal(t, len(must.Get(s.Resume(t.Context(), ""))(t)), 0, "ended pauses, if nothing is paused")
	s.logged("ada@shop: admin.Pause [{Category:tickets For:1h0m0s Reason:the provider is down Replace:false}]: done",
		"bob: admin.Pause", "ada@shop: admin.Pause", "ada@shop: admin.Resume [tickets]: done", "admin.Resume")
}

func TestAdmin_RefusesAPauseThatWouldPauseNothing(t *testing.T) {
	s := newShop(t)
	good := admin.PauseRequest{Category: "tickets", For: time.Hour, Reason: "why"}
	for name, c := range map[string]struct {
		change func(*admin.PauseRequest)
		want   string
	}{
		"no time":       {func(r *admin.PauseRequest) { r.For = 0 }, "for is 0s"},
		"a long time":   {func(r *admin.PauseRequest) { r.For = 25 * time.Hour }, "at most 24h"},
		"no reason":     {func(r *admin.PauseRequest) { r.Reason = " " }, "reason is missing"},
		"a bad and a 2": {func(r *admin.PauseRequest) { r.For, r.Reason = -1, "" }, "reason is missing"},
	} {
		r := good
		c.change(&r)
		_, err := s.Pause(t.Context(), r)
		_, planned := s.PlanPause(t.Context(), r)
		for _, err := range []error{err, planned} {
			expect.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s: %v", name, err)
		}
	}
	s.logged()
}

// With a Store of the program's own, the database has the pauses, and decides nothing else.
func TestAdmin_OfAStoreOfTheProgramPausesInTheDatabase(t *testing.T) {
	s := newShop(t)
	a := must.Get(admin.New(s.app(pipeline.Options{Connections: s.clients, Store: own{}}), "ada"))(t)
	must.Get(a.Pause(t.Context(), admin.PauseRequest{For: time.Hour, Reason: "why"}))(t)
	must.Get(a.Pause(t.Context(), admin.PauseRequest{Category: "tickets", For: time.Hour, Reason: "why"}))(t)
	expect.Equal(t, len(must.Get(a.Pauses(t.Context()))(t)), 2, "pauses")
	s.append(s.cfg.Topics.Close, s.record("order-1", "tickets"))
	h := must.Get(a.History(t.Context(), "order-1"))(t)
	const knows = "the service or the Store of the program that closes the orders knows its status; its record is in"
	expect.That(t, strings.HasPrefix(h.Now.String(), knows), "%s", h.Now)
	expect.Is(t, expect.Err(a.Verdicts(t.Context(), "order-1")), admin.ErrClosedElsewhere, "verdicts")
	expect.Is(t, expect.Err(a.Overdue(t.Context())), admin.ErrClosedElsewhere, "overdue orders")
}

func TestAdmin_ResolvesLatePaymentsOnce(t *testing.T) {
	s := newShop(t)
	s.late(7, "order-1", "pay-1")
	s.late(8, "order-1", "")
	found := must.Get(s.LatePayments(t.Context(), false))(t)
	must.That(t, len(found) == 2, "%+v", found)
	expect.That(t, found[0].ID == 7 && found[0].Amount == 1999 && found[0].Currency == "EUR" && found[0].Source == admin.SourceCallback &&
		slices.Equal(found[0].PerhapsSame, []int64{8}), "%+v", found[0])
	p := must.Get(s.ResolveLate(t.Context(), 7, admin.Refunded))(t)
	expect.That(t, p.Resolution == admin.Refunded && p.ResolvedBy == "ada@shop" && !p.ResolvedAt.IsZero(), "%+v", p)
	p, err := s.ResolveLate(t.Context(), 7, admin.Reopened)
	expect.That(t, errors.Is(err, admin.ErrResolved) && p.Resolution == admin.Refunded, "%+v, %v", p, err)
	expect.Is(t, expect.Err(s.ResolveLate(t.Context(), 9, admin.Reopened)), admin.ErrNotFound, "a late payment")
	_, err = s.ResolveLate(t.Context(), 8, "kept")
	expect.That(t, err != nil && strings.Contains(err.Error(), `"kept"`), "%v", err)
	expect.Equal(t, len(must.Get(s.LatePayments(t.Context(), false))(t)), 1, "late payments that nobody has resolved")
	expect.Equal(t, len(must.Get(s.LatePayments(t.Context(), true))(t)), 2, "late payments")
	expect.Equal(t, must.Get(s.LatePayment(t.Context(), 7))(t).ResolvedBy, "ada@shop", "resolved by")
	expect.Is(t, expect.Err(s.LatePayment(t.Context(), 9)), admin.ErrNotFound, "a late payment")
	s.logged("admin.ResolveLate [7 refunded]: done")
}

func TestAdmin_SaysWhatBecameOfAnOrder(t *testing.T) {
	s := newShop(t)
	s.order("overdue", "tickets", 0, -time.Minute)
	s.order("waits", "", 0, time.Hour)
	s.order("paid", "", 1, -time.Minute)
	s.late(1, "paid", "pay-1")
	s.append(s.cfg.Topics.Close, s.record("overdue", "tickets"))
	var verdicts []orderclose.Verdict
	for _, o := range must.Get(s.Verdicts(t.Context(), "overdue", "waits", "paid", "gone"))(t) {
		verdicts = append(verdicts, o.Verdict)
	}
	expect.Same(t, verdicts, []orderclose.Verdict{orderclose.Closed, orderclose.NotDue, orderclose.AlreadyPaid, orderclose.NotFound}, "verdicts")
	_, err := s.Verdicts(t.Context(), "paid", "")
	expect.That(t, err != nil, "an empty id has a verdict")

	h := must.Get(s.History(t.Context(), "overdue"))(t)
	expect.That(t, strings.HasPrefix(h.Now.String(), "unpaid, and overdue by") && h.Database.Order.Category == "tickets" && len(h.NotRead) == 0, "%+v", h)
	records := 0
	for _, topic := range h.Topics {
		records += len(topic.Records)
	}
	expect.Equal(t, records, 1, "records of the order")
	h = must.Get(s.History(t.Context(), "paid"))(t)
	expect.That(t, len(h.Database.LatePayments) == 1, "%+v", h.Database)
	expect.Is(t, expect.Err(s.History(t.Context(), "gone")), admin.ErrNotFound, "a history")
	_, err = s.History(t.Context(), "")
	expect.That(t, err != nil && !errors.Is(err, admin.ErrNotFound), "%v", err)
	s.logged()
}

func TestAdmin_ListsOverdueOrders(t *testing.T) {
	s := newShop(t)
	s.order("late", "", 0, -time.Minute)
	s.order("later", "", 0, -time.Hour)
	s.order("ticket", "tickets", 0, -2*time.Minute)
	s.order("now", "", 0, -time.Second)
	s.order("paid", "", 1, -time.Hour)
	must.Get(s.Pause(t.Context(), admin.PauseRequest{Category: "tickets", For: time.Hour, Reason: "why"}))(t)
	found := must.Get(s.Overdue(t.Context()))(t)
	ids := func(orders []orderclose.Order) (ids []string) {
		for _, o := range orders {
			ids = append(ids, o.ID)
		}
		return ids
	}
	expect.Same(t, ids(found.Orders), []string{"later", "late"}, "overdue orders")
	expect.Same(t, ids(found.Paused), []string{"ticket"}, "paused orders")
	expect.That(t, !found.More && time.Since(found.At).Abs() < time.Minute, "%+v", found)
}

func TestAdmin_ListsDeadLettersAndSendsThemAgain(t *testing.T) {
	s := newShop(t)
	s.order("b", "", 0, -time.Minute)
	s.order("c", "", 1, -time.Minute)
	for _, id := range []string{"a", "b", "c"} {
		m := s.record(id, "")
		m.Topic = s.cfg.Topics.Close
		s.append(s.cfg.Topics.DeadLetter, wire.DeadLetter(m, "closer", "failed", "closing it failed"))
	}
	list := must.Get(s.DeadLetters(t.Context(), admin.DeadLetterFilter{}, 2))(t)
	must.That(t, len(list.Letters) == 2 && list.More && list.Open["failed"] == 2, "%+v", list)
	list = must.Get(s.DeadLetters(t.Context(), admin.DeadLetterFilter{Order: "b", Open: true}, 0))(t)
	must.That(t, len(list.Letters) == 1 && list.Letters[0].Order == "open", "%+v", list)
	whole := must.Get(s.DeadLetter(t.Context(), list.Letters[0].At))(t)
	expect.That(t, whole.Key == "b" && whole.Detail == "closing it failed" && whole.OrderProblem == "", "%+v", whole)
	expect.Is(t, expect.Err(s.DeadLetter(t.Context(), must.Get(admin.ParsePosition("1/77"))(t))), admin.ErrNotFound, "a dead letter")

	plan := must.Get(s.PlanReplay(t.Context(), admin.ReplayRequest{From: time.Now().Add(-time.Hour), Orders: []string{"a"}, DeadLetters: true}))(t)
	expect.That(t, plan.Records == 3 && s.in(s.cfg.Buckets[0].Topic) == 0, "%+v", plan)
	r := must.Get(s.Replay(t.Context(), plan, admin.ReplayOptions{}))(t)
	expect.That(t, r.Sent == 1 && s.in(s.cfg.Buckets[0].Topic) == 1, "%+v", r)
	s.logged("admin.Replay")
}

func TestAdmin_ReplaysWhatItsPlanHas(t *testing.T) {
	s := newShop(t)
	s.order("a", "tickets", 0, -time.Minute)
	s.append(s.cfg.Topics.Close, s.record("a", "tickets"))
	s.append(s.cfg.Topics.Close, s.record("b", ""))
	r := admin.ReplayRequest{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Minute), Orders: []string{"a"}}
	plan := must.Get(s.PlanReplay(t.Context(), r))(t)
	expect.That(t, plan.Records == 2 && s.in(plan.Topic) == 2, "%+v", plan)
	progress := ""
	result := must.Get(s.Replay(t.Context(), plan, admin.ReplayOptions{Progress: func(done, total int64) { progress = fmt.Sprint(done, "/", total) }}))(t)
	expect.That(t, result.Sent == 1 && s.in(plan.Topic) == 3 && progress == "2/2", "%+v, %s", result, progress)
	s.logged("admin.Replay")

	for want, r := range map[string]admin.ReplayRequest{
		"is empty":             {From: time.Now().Add(time.Hour)},
		"ReplayRequest.Orders": {From: time.Now().Add(-time.Hour), Orders: []string{""}},
	} {
		_, err := s.PlanReplay(t.Context(), r)
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%v, want %s", err, want)
	}
	_, err := s.Replay(t.Context(), plan, admin.ReplayOptions{Rate: -1})
	expect.That(t, err != nil && strings.Contains(err.Error(), "Rate is -1"), "%v", err)
}

// A shop without Kafka, and a program that sees Kafka alone.
func TestAdmin_NamesTheServerThatItDoesNotHave(t *testing.T) {
	s := newShop(t)
	made := func(c clients.Clients) *admin.Admin {
		return must.Get(admin.New(s.app(pipeline.Options{Connections: c}), "ada"))(t)
	}
	noKafka, noDatabase := made(clients.Clients{Store: s.clients.Store}), made(clients.Clients{Kafka: s.clients.Kafka})
	must.Get(noKafka.Pause(t.Context(), admin.PauseRequest{For: time.Minute, Reason: "why"}))(t)
	for name, call := range map[string]func(*admin.Admin) error{
		"DeadLetters": func(a *admin.Admin) error {
			return expect.Err(a.DeadLetters(t.Context(), admin.DeadLetterFilter{}, 0))
		},
		"DeadLetter": func(a *admin.Admin) error { return expect.Err(a.DeadLetter(t.Context(), admin.Position{})) },
		"PlanReplay": func(a *admin.Admin) error {
			return expect.Err(a.PlanReplay(t.Context(), admin.ReplayRequest{From: time.Now().Add(-time.Hour)}))
		},
		"Replay": func(a *admin.Admin) error {
			return expect.Err(a.Replay(t.Context(), admin.ReplayPlan{}, admin.ReplayOptions{}))
		},
	} {
		expect.That(t, errors.Is(call(noKafka), admin.ErrNoKafka), "%s: %v", name, call(noKafka))
	}
	for name, call := range map[string]func(*admin.Admin) error{
		"Pauses": func(a *admin.Admin) error { return expect.Err(a.Pauses(t.Context())) },
		"Pause": func(a *admin.Admin) error {
			return expect.Err(a.Pause(t.Context(), admin.PauseRequest{For: time.Minute, Reason: "why"}))
		},
		"Resume":       func(a *admin.Admin) error { return expect.Err(a.Resume(t.Context(), "")) },
		"LatePayments": func(a *admin.Admin) error { return expect.Err(a.LatePayments(t.Context(), false)) },
		"LatePayment":  func(a *admin.Admin) error { return expect.Err(a.LatePayment(t.Context(), 1)) },
		"ResolveLate":  func(a *admin.Admin) error { return expect.Err(a.ResolveLate(t.Context(), 1, admin.Refunded)) },
		"Verdicts":     func(a *admin.Admin) error { return expect.Err(a.Verdicts(t.Context(), "a")) },
		"Overdue":      func(a *admin.Admin) error { return expect.Err(a.Overdue(t.Context())) },
	} {
		expect.That(t, errors.Is(call(noDatabase), admin.ErrNoDatabase), "%s: %v", name, call(noDatabase))
	}
	expect.Says(t, expect.Err(admin.New(s.app(pipeline.Options{}), "ada")), "neither a Kafka cluster nor a database", "an App without servers")
	expect.Says(t, expect.Err(admin.New(s.app(pipeline.Options{Connections: s.clients}), " ")), "operator is empty", "an empty name")
	for _, name := range []string{"", " "} {
		expect.Says(t, expect.Err(s.As(name)), "operator is empty", "As(%q)", name)
	}
}
