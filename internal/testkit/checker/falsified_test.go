package checker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// due is the due time of every order of the tests.
var due = time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())

// run is a run whose database and logs a test may falsify.
type run struct {
	t       *testing.T
	servers *pipelinetest.Servers
	expect  checker.Expect
}

// goodRun returns a run in which every promise was kept: order a was closed on time, b was paid.
func goodRun(t *testing.T) *run {
	t.Helper()
	s := must.Get(pipelinetest.Start(pipelinetest.Options{}))(t)
	t.Cleanup(s.Close)
	cfg := config.Default()
	c := must.Get(s.Connect("test"))(t)
	defer c.Close()
	_, _, err := c.Kafka.Apply(t.Context(), topics.Specs(cfg))
	must.That(t, err == nil, "%v", err)
	r := &run{t: t, servers: s, expect: scenario.ExpectOf(cfg, nil)}
	r.expect.Created, r.expect.Paid, r.expect.Stock = []string{"a", "b"}, []string{"b"}, map[string]int64{"x": 10}
	r.expect.OpenAfter, r.expect.EventsTopic, r.expect.ProducerTime = time.Now(), "", true
	closed := due.Add(40 * time.Millisecond).UnixMilli()
	r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, closed_at, version) VALUES ('a', '', 2, 0, ?, ?, 1)", due.UnixMilli(), closed)
	r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, paid_at, version) VALUES ('b', '', 1, 0, ?, 1, 1)", due.UnixMilli())
	r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('a', 1, 'x', 2), ('b', 1, 'x', 3)")
	r.exec("INSERT INTO stock (sku_id, available, reserved) VALUES ('x', 7, 3)")
	r.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, returned)"+
		` VALUES ('a', 'closed', ?, ?, 'pipeline', 0, 40, '{"x":2}')`,
		due.UnixMilli(), closed)
	return r
}

func (r *run) exec(query string, args ...any) {
	r.t.Helper()
	_, err := r.servers.DB().Exec(query, args...)
	must.That(r.t, err == nil, "%s: %v", query, err)
}

func (r *run) check() *checker.Verdict {
	r.t.Helper()
	v := must.Get(checker.Check(r.t.Context(), checker.Servers{DB: r.servers.DB(), Brokers: r.servers.Brokers(), Dial: r.servers.Dial}, r.expect))(r.t)
	return v
}

func TestCheck_AcceptsARunThatKeptEveryPromise(t *testing.T) {
	v := goodRun(t).check()
	expect.That(t, len(v.Violations) == 0 && v.Orders == 2 && v.Paid == 1 && v.ByPath["pipeline"] == 1, "%+v", v)
	expect.That(t, len(v.Samples) == 1 && v.Samples[0] == (checker.Sample{Due: due, Late: 40 * time.Millisecond, Path: "pipeline"}), "samples %+v", v.Samples)
}

func TestCheck_FindsEveryBrokenPromise(t *testing.T) {
	for name, c := range map[string]struct {
		falsify                   func(r *run)
		early, lost, double, open int
		says                      string
	}{
		"an early close": {func(r *run) {
			early := due.Add(-time.Second).UnixMilli()
			r.exec("UPDATE orders SET closed_at = ? WHERE id = 'a'", early)
			r.exec("UPDATE receipts SET closed_at = ?, lateness_ms = -1000", early)
		}, 1, 0, 0, 0, "before they were due"},
		"stock given back twice":                        {func(r *run) { r.exec("UPDATE stock SET available = available + 2") }, 0, 0, 1, 0, "began with 10"},
		"an open order":                                 {func(r *run) { r.open("c") }, 0, 0, 0, 1, "overdue and open"},
		"an order that was lost":                        {func(r *run) { r.expect.Created = append(r.expect.Created, "c") }, 0, 1, 0, 0, "not in the database"},
		"a paid order is closed":                        {func(r *run) { r.expect.Paid = []string{"a"} }, 0, 0, 1, 0, "was paid and has status"},
		"a close without a receipt":                     {func(r *run) { r.exec("DELETE FROM receipts") }, 0, 0, 2, 0, "a receipt: false"},
		"an order that was added and published nowhere": {func(r *run) { r.expect.Added = []string{"a"} }, 0, 1, 0, 0, "neither there nor in any topic"},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodRun(t)
			c.falsify(r)
			v := r.check()
			expect.That(t, v.Early == c.early && v.Lost == c.lost && v.Inconsistent == c.double && v.Open == c.open,
				"early %d, lost %d, double %d, open %d", v.Early, v.Lost, v.Inconsistent, v.Open)
			all := strings.Join(v.Violations, "\n")
			expect.That(t, strings.Contains(all, c.says), "no violation says %q:\n%s", c.says, all)
		})
	}
}

// open adds an unpaid order that is overdue, with its stock.
func (r *run) open(id string) {
	r.t.Helper()
	r.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, '', 0, 0, ?, 0)", id, due.UnixMilli())
	r.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, 1, 'x', 1)", id)
	r.exec("UPDATE stock SET available = available - 1, reserved = reserved + 1")
}

func TestWitness_SeesAnEarlyCloseUnlessItIsBlind(t *testing.T) {
	r := goodRun(t)
	const clock = "SELECT unixepoch() * 1000"
	w := &checker.Witness{DB: r.servers.DB(), Clock: clock, Query: "SELECT expire_at FROM orders WHERE status = 2 AND expire_at > (" + clock + ")"}
	look := func() *checker.Verdict {
		w.Look(t.Context())
		v := &checker.Verdict{}
		w.AddTo(v)
		return v
	}
	if v := look(); v.Early != 0 {
		t.Errorf("of a good run it says %+v", v)
	}
	r.exec("UPDATE orders SET expire_at = ? WHERE id = 'a'", time.Now().Add(time.Hour).UnixMilli())
	end := w.Blind(0)
	if v := look(); v.Early != 0 {
		t.Errorf("blind it says %+v", v)
	}
	end()
	if v := look(); v.Early != 1 || len(v.Violations) != 1 {
		t.Errorf("of an early close it says %+v", v)
	}
}

// A statement that waits for a lock compares with the time of its beginning, and sees orders that were closed meanwhile.
func TestWitness_ComparesWithTheTimeAfterItsQuery(t *testing.T) {
	r := goodRun(t)
	// as if it had begun long ago
	w := &checker.Witness{DB: r.servers.DB(), Clock: "SELECT unixepoch() * 1000", Query: "SELECT expire_at FROM orders WHERE status = 2"}
	w.Look(t.Context())
	v := &checker.Verdict{}
	looks := w.AddTo(v)
	expect.That(t, looks == 1 && v.Early == 0, "after %d looks it says %+v", looks, v)
}
