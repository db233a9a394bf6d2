package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// change is what makes the tables of a month fit the mapping no more, and what undoes it. %[1]s is the table of orders, %[2]s that of lines.
type change struct{ do, undo string }

func renamed(table, column string) change {
	return change{fmt.Sprintf("ALTER TABLE %s RENAME COLUMN %s TO gone", table, column), fmt.Sprintf("ALTER TABLE %s RENAME COLUMN gone TO %s", table, column)}
}

// unfitting lists changes by the database; those of "" are for each.
var unfitting = map[store.DialectName][]change{
	"": {
		renamed("%[1]s", "order_no"), renamed("%[1]s", "status"), renamed("%[1]s", "expire_ms"), renamed("%[1]s", "created_ms"), renamed("%[1]s", "revision"),
		renamed("%[2]s", "order_no"), renamed("%[2]s", "sku"), renamed("%[2]s", "quantity"),
		{"ALTER TABLE %[2]s RENAME TO kept_lines", "ALTER TABLE kept_lines RENAME TO %[2]s"},
	},
	store.MySQL: {
		{"ALTER TABLE %[1]s MODIFY expire_ms VARCHAR(20) NOT NULL", "ALTER TABLE %[1]s MODIFY expire_ms BIGINT NOT NULL"},
		{"ALTER TABLE %[1]s MODIFY order_no VARCHAR(32) COLLATE utf8mb4_unicode_520_ci NOT NULL", "ALTER TABLE %[1]s MODIFY order_no VARCHAR(32) NOT NULL"},
		{"ALTER TABLE %[2]s MODIFY order_no VARCHAR(32) COLLATE utf8mb4_unicode_520_ci NOT NULL", "ALTER TABLE %[2]s MODIFY order_no VARCHAR(32) NOT NULL"},
		{"ALTER TABLE %[1]s ENGINE = MyISAM", "ALTER TABLE %[1]s ENGINE = InnoDB"},
		{"ALTER TABLE %[1]s RENAME TO kept; CREATE VIEW %[1]s AS SELECT * FROM kept", "DROP VIEW %[1]s; ALTER TABLE kept RENAME TO %[1]s"},
	},
	store.Postgres: {
		{"ALTER TABLE %[1]s ALTER expire_ms TYPE text", "ALTER TABLE %[1]s ALTER expire_ms TYPE bigint USING expire_ms::bigint"},
		{"ALTER TABLE %[1]s RENAME TO kept; CREATE VIEW %[1]s AS SELECT * FROM kept", "DROP VIEW %[1]s; ALTER TABLE kept RENAME TO %[1]s"},
	},
}

// unfitMonth changes the tables of a month so that they do not fit. The orders of all other months close, all reads go on, and the order of
// that month fails with the cause, until its tables fit again. Which month, and how, is drawn by seed.
func unfitMonth(t *testing.T, s *mapped) {
	if s.Month == "" || s.Mapping.ByRule {
		t.Skip("no tables of months with the columns that are changed")
	}
	s.begin()
	usual := uint64(2)
	if ring.All() {
		usual = 40
	}
	for seed, after := ring.Seeds(usual); seed < after; seed++ {
		s.playUnfit(seed)
	}
}

func (s *mapped) playUnfit(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	all := append(unfitting[""], unfitting[s.Dialect()]...)
	c, back := all[random.IntN(len(all))], random.IntN(7)-1
	month := s.monthsAgo(back)
	orders, lines := s.table(s.Mapping.Orders, month), s.table(s.Mapping.Items.Table, month)
	named := strings.NewReplacer("%[1]s", orders, "%[2]s", lines)
	what := fmt.Sprintf("seed %d: %s", seed, named.Replace(c.do))
	run := func(statements string) {
		for one := range strings.SplitSeq(named.Replace(statements), "; ") {
			s.exec(one)
		}
	}
	var in []orderclose.Order // one for each month
	for n := range 7 {
		o := s.an(int(seed)*10+n, -time.Minute)
		o.CreatedAt = s.monthsAgo(n - 1)
		in = append(in, o)
	}
	s.put(s.Mapping.Status.From[0], in...)
	lost := in[back+1]

	run(c.do)
	p := s.Store
	if s.lacks(rowLocks) { // a database in memory
		p.Q.Tables.Forget()
	} else {
		p = s.another() // a process that starts now
	}
	s.readsGoOn(p, what, lost.ID)
	aside := p.SetAside(true)
	expect.Says(s, aside, s.month(month), "%s: what is left out", what)
	expect.That(s, (p.SetAside(false) != nil) == (back >= 0), "%s: without the months ahead: %v", what, p.SetAside(false))
	expect.NoError(s, p.CheckMapping(s.Context()))
	for i, o := range must.Get(p.PayOrders(s.Context(), ask(lost)))(s) {
		s.wantAside(o, what+fmt.Sprint(", payment ", i))
	}
	_, late := p.RecordLate(s.Context(), []store.LatePayment{{OrderID: lost.ID, Source: store.SourceRecheck}})
	expect.Says(s, late, s.month(month), "%s: its late payment", what)
	for _, o := range must.Get(p.CloseOrders(s.Context(), orderclose.PathPipeline, ask(in...)))(s) {
		if o.OrderID == lost.ID {
			s.wantAside(o, what)
		} else {
			want(s, what+": order "+o.OrderID, o.Verdict, orderclose.Closed)
		}
	}

	run(c.undo)
	p.Q.Tables.Forget()
	for _, o := range must.Get(p.CloseOrders(s.Context(), orderclose.PathPipeline, ask(lost)))(s) {
		want(s, what+": its order, after "+c.undo, o.Verdict, orderclose.Closed)
	}
	expect.NoError(s, p.SetAside(true))
}

func (s *mapped) wantAside(o orderclose.Outcome, what string) {
	s.Helper()
	cause, _ := o.Why()
	expect.That(s, o.Verdict == orderclose.Failed && cause == orderclose.TableUnfit, "%s: %+v", what, o)
}

// readsGoOn reads the orders in all ways. None of them finds the order that is lost, and each finds another one.
func (s *mapped) readsGoOn(p *store.Store, what, lost string) {
	s.Helper()
	now, ctx := s.now(), s.Context()
	begin, err := p.BeginTurn(ctx, now)
	expect.That(s, err == nil && !begin.Quiet, "%s: a turn begins with %+v, %v", what, begin, err)
	found, err := p.ReadOverdue(ctx, overdue.Window{To: now, Newest: true})
	expect.That(s, err == nil && len(found.Orders) == 6, "%s: the loop reads %+v, %v", what, found, err)
	page, err := p.Overdue(ctx, now, orderclose.Order{}, 10)
	for _, o := range page {
		expect.That(s, o.ID != lost, "%s: a page has the order", what)
	}
	expect.That(s, err == nil && len(page) == 6, "%s: a page: %+v, %v", what, page, err)
	_, _, _, err = p.OverdueNow(ctx, 0)
	_, counted := p.CountOrders(ctx)
	_, parts := p.AuditParts(ctx)
	_, history := p.OrderHistory(ctx, lost)
	expect.NoError(s, errors.Join(err, counted, parts, history))
}
