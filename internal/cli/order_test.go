package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

// shop returns a database with an order that was closed, and one that waits.
func (r *rig) shop() *store.Store {
	r.t.Helper()
	s := must.Get(sqlite.Open(sqlite.Memory, nil))(r.t)
	r.t.Cleanup(func() { s.Close() })
	ctx, now := r.t.Context(), time.Now()
	for _, err := range []error{
		s.Migrate(ctx), scenario.OrdersOf(s).PutStock(ctx, "ink", 10),
		scenario.OrdersOf(s).CreateOrder(ctx, orderclose.Order{ID: "closed", CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)},
			[]shopdb.Item{{SKU: "ink", Quantity: 2}}),
		scenario.OrdersOf(s).CreateOrder(ctx, orderclose.Order{ID: "waits", CreatedAt: now, Due: now.Add(time.Hour)}, nil),
	} {
		must.Do(r.t, err)
	}
	must.Get(s.CloseOrders(ctx, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "closed"}}))(r.t)
	return s
}

// send appends a record of an order to the partition of its key.
func (r *rig) send(topic, id string, due time.Time) {
	r.t.Helper()
	m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}, Release: due}.Encode())(r.t)
	n := must.Get(r.kafka.Partitions(r.t.Context(), topic))(r.t)
	must.Get(r.kafka.Append(r.t.Context(), topic, kafka.PartitionOf([]byte(id), n), []wire.Message{m}))(r.t)
}

func TestBroker_OrderShowsTheWholeHistory(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	s := &session{Clients: clients.Clients{Kafka: r.kafka, Store: r.shop()}, cfg: r.cfg}
	due := time.Now().Add(time.Hour)
	r.send("delay_1h", "other", due)
	r.send("delay_1h", "waits", due)
	r.send(r.cfg.Topics.Close, "closed", time.Now())
	r.addDeadLetter("closed", "failed", time.Now())

	history := s.pipeline().History(t.Context(), "waits", 1000)
	if !strings.Contains(history.Now.String(), "its record waits in delay_1h/") || len(history.NotRead) != 0 || historyError(history, true) != nil ||
		history.Database.Order == nil {
		t.Errorf("%+v", history)
	}
	history = s.pipeline().History(t.Context(), "closed", 1000)
	var what []string
	for _, e := range history.Timeline {
		what = append(what, e.What.String())
	}
	all := strings.Join(what, "\n")
	for _, want := range []string{"created, to be closed at", "due", "handed to the closer", "closed by pipeline",
		"quantity 2 of SKU ink came back", "still in the outbox",
		"given up by closer: failed"} {
		expect.That(t, strings.Contains(all, want), "the timeline does not contain %q:\n%s", want, all)
	}
	history = s.pipeline().History(t.Context(), "nobody", 1000)
	expect.That(t, codeOf(historyError(history, true)) == int(NotFound), "%+v", history)
}

// An order that cannot be closed is named with its cause, and status names one of each cause.
func TestBroker_AnOrderThatCannotBeClosedSaysWhy(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	s := &session{Clients: clients.Clients{Store: r.shop()}, cfg: r.cfg}
	due := time.Now().Add(-time.Minute)
	must.Do(t, scenario.OrdersOf(s.Store).PutStock(t.Context(), "pen", 2))
	must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), orderclose.Order{ID: "stuck", CreatedAt: due, Due: due},
		[]shopdb.Item{{SKU: "pen", Quantity: 2}}))
	must.Get(s.Store.DB().ExecContext(t.Context(), "DELETE FROM stock WHERE sku_id = 'pen'"))(t)
	const cause = `stock_row_missing: SKU "pen" has no row in table stock`
	look := func(told string) {
		t.Helper()
		now := s.pipeline().History(t.Context(), "stuck", 1000).Now.String()
		expect.That(t, strings.HasSuffix(now, told+": "+cause+": orderclose runbook an-order-cannot-be-closed"), "%s", now)
		overdue := ops.Get(t.Context(), s.questions(t.Context()), ops.OverdueCheck)
		expect.That(t, overdue.Err == nil && strings.Contains(overdue.Value.String(), cause), "%v, %v", overdue.Value, overdue.Err)
	}
	look("it cannot be closed")
	s.Kafka = r.kafka
	look("it cannot be closed")
	must.Do(t, scenario.OrdersOf(s.Store).PutStock(t.Context(), "ink", 20))
	for i := range 8 {
		o := orderclose.Order{ID: fmt.Sprint("short-", i), CreatedAt: due, Due: due.Add(time.Duration(i+1) * time.Millisecond)}
		must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), o, []shopdb.Item{{SKU: "ink", Quantity: 2}}))
	}
	must.Get(s.Store.DB().ExecContext(t.Context(), "UPDATE stock SET reserved = 1 WHERE sku_id = 'ink'"))(t)
	look("it cannot be closed")
	overdue := ops.Get(t.Context(), s.questions(t.Context()), ops.OverdueCheck).Value
	expect.That(t, len(overdue.Failures) == 2 && overdue.Failures[1].Cause == string(orderclose.ReservedTooLow), "one order of each cause: %v", overdue)
}

func TestBroker_OrderWithoutADatabaseSaysSo(t *testing.T) {
	r := newRig(t)
	if _, stderr, code := r.cli("order", "a"); code != 6 {
		t.Errorf("without topics: exit %d, %s", code, stderr)
	}
	r.cli("topics", "apply")
	r.send("delay_1m", "a", time.Now())
	out, _, code := r.cli("order", "a")
	if code != 0 || !strings.Contains(out, "the database was not asked: "+environ.EnvDSN+" is not set\nread 1 record of ") ||
		strings.Contains(out, "Kafka was not") || !strings.Contains(out, "its record waits in delay_1m/") {
		t.Errorf("exit %d\n%s", code, out)
	}
	var history ops.History
	stderr := r.json(&history, 4, "order", "b")
	expect.That(t, !history.Known() && strings.Contains(stderr, environ.EnvDSN), "%+v, %s", history, stderr)
	for range 9 {
		r.send("delay_1m", "a", time.Now())
	}
	if stderr := r.json(&history, 4, "order", "b", "--budget", "4"); !strings.Contains(stderr, "not checked: 8 records") { // of the partition with all ten
		t.Errorf("the budget was spent: %s", stderr)
	}
}

// For a server that is not set, the output names the variable. For a server that does not answer, the output has only the error.
func TestOrder_SaysWhyAServerIsMissing(t *testing.T) {
	file, broken := topicsYAML(t, "buckets: [10s]\n"), "127.0.0.1:1"
	out, _, code := run(t, map[string]string{environ.EnvBrokers: broken}, "order", "a", "--within", "1s", "--config", file)
	if code != 6 || !strings.Contains(out, "the database was not asked: "+environ.EnvDSN+" is not set\n") ||
		!strings.Contains(out, "does not answer") || strings.Contains(out, "Kafka was not asked") {
		t.Errorf("without a database: exit %d\n%s", code, out)
	}
	out, _, code = run(t, map[string]string{environ.EnvDSN: "u:p@tcp(" + broken + ")/d"}, "order", "a", "--within", "1s", "--config", file)
	if code != 6 || !strings.Contains(out, "Kafka was not asked: "+environ.EnvBrokers+" is not set\n") || strings.Contains(out, "the database was not asked") {
		t.Errorf("without Kafka: exit %d\n%s", code, out)
	}
}

func TestSeveral_OneHasNoPlural(t *testing.T) {
	expect.Equal(t, text.Plural(0, "line")+text.Plural(1, "line")+text.Plural(int64(2), "line"), "0 lines1 line2 lines", "plural")
}

func TestOrder_Table(t *testing.T) {
	due := at.Add(5 * time.Minute)
	db := &store.OrderHistory{
		At: at.Add(6 * time.Minute), Order: &store.OrderRow{ID: "order-17", Category: "virtual", State: "unpaid", CreatedAt: at, Due: due, Version: 1},
		Items: []store.ItemRow{{Line: 1, SKU: "ink", Quantity: 2}},
	}
	letter := &deadletters.Letter{Cause: "failed", Detail: "no stock\nrow", Stage: "closer",
		Source: deadletters.Source{Topic: "order-close", Partition: 3, Offset: 7}}
	topics := []ops.HistoryTopic{
		{Topic: "delay_5m", Kind: ops.KindBucket, Group: "g", Looked: 100_000, Skipped: 31,
			Records: []ops.Record{{Partition: 3, Offset: 17, Appended: at.Add(time.Second), Leaves: due}}},
		{Topic: "order-close-dead-letter", Kind: ops.KindDeadLetters, Looked: 2, Records: []ops.Record{{Offset: 4, Appended: due.Add(time.Second), Dead: letter}}},
		{Topic: "order-events", Kind: ops.KindEvents, Problem: "topic order-events does not exist"},
	}
	golden(t, "order", func(w io.Writer) {
		printHistory(w, ops.NewHistory("order-17", at, db, topics, nil, ops.Closing{}), nil)
	})
}

func TestDoubt_ImprobableDueTimesAreFound(t *testing.T) {
	in := func(d time.Duration) time.Time { return at.Add(d) }
	for _, c := range []struct {
		counts store.OrderCounts
		accept string
		want   string // a part of the doubt; empty: none
	}{
		{store.OrderCounts{At: at}, "", ""},
		{store.OrderCounts{At: at, From: 5, Overdue: 2, Waiting: 3, Farthest: in(30 * time.Minute)}, "", ""},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(31 * time.Minute)}, "", ""},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(8 * time.Hour)}, "", "due in 8h0m0s, but the longest delay in topics.yaml is 30m"},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(8 * time.Hour)}, mapping.FarDue, ""},
		{store.OrderCounts{At: at, From: 341, Overdue: 341}, "", "341 unpaid orders are overdue, and none is due in the future"},
		{store.OrderCounts{At: at, From: 341, Overdue: 341}, mapping.NothingDueLater, ""},
		{store.OrderCounts{At: at, From: 1, Overdue: 1, Oldest: in(-time.Second)}, "", ""}, // a relay has it
		{store.OrderCounts{At: at, From: 7, Excluded: 7}, "", "excludes all 7 unpaid orders"},
	} {
		cfg := config.Default()
		cfg.Accept = []string{c.accept}
		what, fix := doubt(c.counts, 5*time.Second, nil, cfg)
		expect.That(t, (what == "") == (c.want == "") && strings.Contains(what, c.want) && (fix == "") == (what == ""), "%+v: %q; %q", c.counts, what, fix)
	}
}

// A value that means never is in no other number. If most orders have one, the type is wrong, and not the shop idle.
func TestDoubt_MostOrdersAreNeverDue(t *testing.T) {
	for _, c := range []struct {
		never  int64
		accept string
		wrong  bool
	}{{0, "", false}, {5, "", false}, {6, "", true}, {6, mapping.NeverDue, false}} {
		cfg := config.Default()
		cfg.Accept = []string{c.accept}
		what, fix := doubtNever(store.OrderCounts{From: 10, Never: c.never}, cfg)
		expect.That(t, (what != "") == c.wrong && (fix != "") == c.wrong, "%+v: %q; %q", c, what, fix)
	}
}

// What may mean "not set" or "no limit" is doubted, and what somebody else has written into a column that only orderclose writes.
func TestDoubt_ValuesOfSomebodyElse(t *testing.T) {
	filled := func(key string, filled int64) store.Evidence {
		return store.Evidence{Filled: []store.Filled{{Key: key, Column: "pay_no", Orders: 10, Filled: filled, Value: "0"}}}
	}
	below := store.Evidence{BelowZero: []store.Below{{Table: "t_stock", Column: "free", Rows: 2}}}
	for _, c := range []struct {
		counts   store.OrderCounts
		evidence store.Evidence
		accept   string
		want     string
		wrong    bool
	}{
		{accept: ""},
		{evidence: filled("payment_id", 10), want: `10 of 10 unpaid orders have a value in pay_no already, such as "0" (orders.payment_id)`, wrong: true},
		{evidence: filled("payment_id", 1), want: "1 of 10 unpaid orders have a value in pay_no already"},
		{evidence: filled("payment_id", 10), accept: mapping.FilledPaymentID},
		{evidence: filled("set.reason", 6), want: "it is overwritten when the order ends", wrong: true},
		{evidence: filled("set.note", 6), accept: mapping.FilledBefore},
		{counts: store.OrderCounts{Before2000: store.OddLimit}, want: "100 or more unpaid orders are due before the year 2000"},
		{counts: store.OrderCounts{Before2000: 1}, accept: mapping.DueBefore2000},
		{counts: store.OrderCounts{BeforeCreated: 3}, want: "3 unpaid orders are due before they were created"},
		{counts: store.OrderCounts{BeforeCreated: 3}, accept: mapping.DueBeforeMade},
		{evidence: below, want: "2 rows of t_stock have a free below zero"},
		{evidence: below, accept: mapping.StockBelowZero},
	} {
		cfg := config.Default()
		cfg.Accept = []string{c.accept}
		what, fix, wrong := doubtFilled(c.evidence, cfg)
		if what == "" {
			what, fix = doubtOdd(c.counts, c.evidence, cfg)
		}
		expect.That(t, (what == "") == (c.want == "") && strings.Contains(what, c.want) && (fix == "") == (what == "") && wrong == c.wrong, "%+v: %q; %q, %v",
			c, what, fix, wrong)
	}
}

// The only orders of a quiet hour may be those that cannot be closed. Their cause comes before a doubt about the mapping.
func TestOrderCounts_AnOrderThatCannotBeClosedIsNamed(t *testing.T) {
	failure := &compensator.Failure{OrderID: "order-1", Error: "stock_row_missing: SKU \"17\" has no row in table stock"}
	what, fix := doubt(store.OrderCounts{At: at, From: 1, Overdue: 1}, 5*time.Second, failure, config.Default())
	expect.That(t, strings.HasPrefix(what, "1 unpaid orders are overdue, and none is due in the future: order order-1 cannot be closed: stock_row_missing: ") &&
		strings.HasPrefix(fix, "orderclose runbook an-order-cannot-be-closed; or "), "%s; %s", what, fix)
}

// An order that was created before a delay by rule became shorter keeps the longer delay.
func TestOrderCounts_ByRuleALongerDelayMayStillHold(t *testing.T) {
	cfg := config.Default()
	cfg.Orders = &mapping.Mapping{ByRule: true}
	_, fix := doubt(store.OrderCounts{At: at, From: 1, Waiting: 1, Farthest: at.Add(8 * time.Hour)}, 5*time.Second, nil, cfg)
	expect.That(t, strings.Contains(fix, "if the delay was longer when the order was created, wait until it is due"), "%s", fix)
}

func TestOrderCounts_Table(t *testing.T) {
	c := &orderCounts{
		OrderCounts: store.OrderCounts{At: at, From: 420, To: store.CountLimit, Overdue: 12, Waiting: 385, Excluded: 20, Never: 3,
			Farthest: at.Add(119 * time.Minute)},
		status: mapping.Status{From: mapping.OneOf{mapping.IntValue(101)}, To: mapping.IntValue(103)}, longest: 30 * time.Minute, Doubt: "the longest delay is 30m",
		Evidence: store.Evidence{Unnamed: []string{"104"}, UnnamedAs: store.AuditPaid, PaidColumn: "pay_time", FromSample: store.PaidSample{Orders: 100},
			ToSample: store.PaidSample{Orders: 100, Paid: 2}},
	}
	golden(t, "compensate_counts", c.print)
}

// A callback came after the close, and the provider was asked about another order. Both are resolved.
func TestPayments_AreListedUntilTheyAreResolved(t *testing.T) {
	r := newRig(t)
	s := r.shop()
	p := (&session{Clients: clients.Clients{Store: s}, cfg: r.cfg}).pipeline()
	var out bytes.Buffer
	c := &common{env: Env{Stdout: &out}, config: defaultConfig, output: "table"}
	list := func(all bool, code int, wants ...string) {
		t.Helper()
		out.Reset()
		if err := c.paymentsLate(t.Context(), p, all); codeOf(err) != code {
			t.Errorf("exit %d, %v; want %d", codeOf(err), err, code)
		}
		for _, want := range wants {
			expect.That(t, strings.Contains(out.String(), want), "the list lacks %q:\n%s", want, out.String())
		}
	}
	list(false, 0, "no late payment waits for a decision")
	tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
	if _, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: "closed", PaymentID: "pi_1\n", Amount: 1,
		Currency: "EUR"}); !errors.Is(err, store.ErrBadPayment) {
		t.Errorf("a payment that would break the table: %v", err)
	}
	if _, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: "closed", PaymentID: "pi_1",
		Amount: 1250, Currency: "EUR"}); err != nil ||
		tx.Commit() != nil {
		t.Fatal(err)
	}
	list(false, 3, "closed  pi_1     1250 EUR", "callback", "-         refund-6:closed/pi_1",
		"1 not resolved; say what became of the money: orderclose payments resolve ID")

	resolve := func(id int64, how store.LateResolution, yes bool, code int) string {
		t.Helper()
		out.Reset()
		err := c.resolveLate(t.Context(), s, id, how, yes)
		if codeOf(err) != code {
			t.Errorf("exit %d, %v; want %d", codeOf(err), err, code)
		}
		if err != nil {
			return err.Error()
		}
		return out.String()
	}
	shown := resolve(1, store.Refunded, false, 0)
	expect.That(t, strings.Contains(shown, "orderclose payments resolve 1 --refunded --yes"), "%v", shown)
	list(false, 3)
	if shown := resolve(1, store.Refunded, true, 0); !strings.Contains(shown, "refunded ") || !strings.Contains(shown, operator()) {
		t.Error(shown)
	}
	list(false, 0, "no late payment waits")
	list(true, 0, "refunded ", operator())
	for _, yes := range []bool{false, true} {
		why := resolve(1, store.Reopened, yes, 5)
		expect.That(t, strings.Contains(why, "refunded by "+operator()), "%v", why)
		resolve(99, store.Refunded, yes, 4)
	}
}
