package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// More than twenty orders that were due more than a day before the first migration stay open, until the mapping accepts their close. The others
// close. Fewer are closed as all others are. The printed SQL keeps them whatever their number.
func TestMigrate_OldOrdersStayOpen(t *testing.T) {
	type life struct {
		old    int // orders that were due two days ago
		byRule bool
		accept bool
		print  bool // the schema is that of WriteMigrations
		kept   int
	}
	lives := []life{
		{old: 21, kept: 21}, {old: 20}, {old: 150, kept: 100}, {old: 21, accept: true}, {old: 21, byRule: true, kept: 21}, {old: 20, byRule: true},
		{old: 21, byRule: true, accept: true}, {old: 3, print: true, kept: 3},
	}
	for _, l := range lives {
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
			eachDatabase(t, func(t *testing.T) { keepsOld(t, l.old, l.kept, l.byRule, l.accept, l.print) })
		})
	}
}

func keepsOld(t *testing.T, old, kept int, byRule, accept, print bool) {
	due := "{column: due, type: unix_ms}"
	if byRule {
		due = "{from: due, type: unix_ms}"
	}
	m := *ordersOf(t, "delays: {default: 1h}\nbuckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: `+due+`
  items: none
  stock: none
`)
	if accept {
		m.Accept = append(m.Accept, mapping.OldOrders)
	}
	o := store.Options{DSN: ownDatabase(t), Orders: &m, Pipeline: "order_close", Delays: orderclose.Delays{Default: time.Hour}}
	s := open(t, o)
	exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL)")
	exec(t, s.DB(), "CREATE INDEX st ON t_order (state, due, id)")
	now := must.Get(s.Now(t.Context()))(t)
	insert := func(id int, ago time.Duration) {
		if byRule {
			ago += time.Hour
		}
		exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order VALUES (%d, 0, %d)", id, now.Add(-ago).UnixMilli()))
	}
	for id := range old {
		insert(1000+id, 48*time.Hour)
	}
	insert(1, time.Hour)
	insert(2, 23*time.Hour)
	insert(3, -time.Hour)
	if print {
		var sql bytes.Buffer
		must.Do(t, s.WriteMigrations(&sql))
		for statement := range strings.SplitSeq(sql.String(), ";\n") {
			if strings.TrimSpace(statement) != "" {
				exec(t, s.DB(), statement)
			}
		}
	}
	must.Do(t, s.Migrate(t.Context()))
	if byRule {
		must.Do(t, s.RecordDelays(t.Context()))
	}
	insert(4, 72*time.Hour) // comes later, and is older
	must.Do(t, s.Migrate(t.Context()))

	s = open(t, o)
	page := must.Get(s.Overdue(t.Context(), now, orderclose.Order{}, 500))(t)
	waits := kept > 0
	want := 2
	if !waits {
		want += old + 1
	}
	expect.That(t, len(page) == want, "a sweep finds %d orders, want %d", len(page), want)
	found := must.Get(s.OldOrders(t.Context()))(t)
	if waits && kept < 100 {
		kept++ // the one that came later
	}
	expect.That(t, len(found) == kept, "%d old orders wait, want %d", len(found), kept)
	counts := must.Get(s.CountOrders(t.Context()))(t)
	expect.That(t, counts.Overdue == int64(want) && counts.Waiting == 1 && counts.Never == 0 && (counts.Excluded == int64(old+1)) == waits,
		"the counts are %+v", counts)
	listed, _, _, err := s.OverdueNow(t.Context(), 0)
	expect.That(t, err == nil && len(listed) == want, "%d orders are overdue, %v", len(listed), err)
	for id, verdict := range map[string]orderclose.Verdict{"1000": orderclose.Excluded, "1": orderclose.Closed, "2": orderclose.Closed, "3": orderclose.NotDue} {
		if id == "1000" && !waits {
			verdict = orderclose.Closed
		}
		out := must.Get(closeOrders(t, s, id))(t)
		expect.That(t, out[0] == verdict, "order %s: %s, want %s", id, out[0], verdict)
	}
}
