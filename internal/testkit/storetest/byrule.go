package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// ByRule returns the shop with due times by rule: its orders are due half an hour after they were created. The DDL changes as the pairs say.
func ByRule(own Shop, pairs ...string) Shop {
	m := *own.Mapping
	m.ByRule, m.Due, m.DueIndex = true, *m.Created, ""
	own.Mapping, own.Title = &m, own.Title+"_by_rule"
	own.DueFrom, own.DueAt = m.Due.Column, 30*time.Minute
	ddl := strings.NewReplacer(pairs...)
	own.DDL = slices.Clone(own.DDL)
	for i := range own.DDL {
		own.DDL[i] = ddl.Replace(own.DDL[i])
	}
	return own
}

// RunByRule is RunMapped, with what due times by rule add, for a shop whose mapping has them and a category.
func RunByRule(t *testing.T, own Shop, server Server) {
	runMapped(t, own, server, slices.Concat(mappedPromises, rulePromises))
}

var rulePromises = []promise[mapped]{
	{name: "AnOrderKeepsTheDelayOfItsCreation", test: delayChanges},
	{name: "AProcessWithOtherDelaysClosesNothing", test: otherDelays},
	{name: "TheDatabaseComputesWhatTheDelaysSay", test: sameDueTimes, tags: Dialect},
	{name: "NoDelaysAreAnError", test: noDelays},
	{name: "ACategoryThatIsNotListedAnyMoreIsDefault", test: categoryLeaves},
}

// created inserts an unpaid order of a category that was created some time ago.
func (s *mapped) createdAgo(n int, category string, ago time.Duration) orderclose.Order {
	s.Helper()
	o := orderclose.Order{ID: s.ID(n), Category: category, CreatedAt: s.now().Add(-ago).Truncate(time.Second)}
	o.Due = o.CreatedAt.Add(s.DueAt) // put takes it off again
	s.put(s.Mapping.Status.From[0], o)
	return o
}

// use makes delays those of the process and of the table.
func (s *mapped) use(d orderclose.Delays) {
	s.Helper()
	s.UseDelays(d)
	s.must(s.RecordDelays(s.Context()))
}

// since moves the newest row of a category into the past.
func (s *mapped) since(category string, at time.Time) {
	s.Helper()
	s.exec("UPDATE order_delays SET since_us = ? WHERE category = ? AND since_us = (SELECT at FROM (SELECT MAX(since_us) AS at FROM order_delays"+
		" WHERE category = ?) AS oc_newest)", at.UnixMicro(), category, category)
}

func delayChanges(t *testing.T, s *mapped) {
	s.begin()
	long := orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"virtual": time.Hour}}
	s.use(long)
	s.since("virtual", time.Unix(0, 0))
	short := orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute}}
	s.use(short)
	s.since("virtual", s.now().Add(-20*time.Minute))
	s.must(s.RecordDelays(t.Context()))
	want(t, "rows of the category", s.count("SELECT COUNT(*) FROM order_delays WHERE category = 'virtual'"), 2)
	before, after, other := s.createdAgo(1, "virtual", 40*time.Minute), s.createdAgo(2, "virtual", 10*time.Minute), s.createdAgo(3, "Virtual", 10*time.Minute)
	overdue := s.createdAgo(4, "", 31*time.Minute)
	page := must.Get(s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10))(t)
	want(t, "overdue", ids(page), []string{after.ID, overdue.ID})
	want(t, "due time of a page", page[0].Due, after.CreatedAt.Add(5*time.Minute))
	out := s.closing(before, after, other, overdue)
	want(t, "verdicts", verdicts(out), []string{before.ID + " not_due", after.ID + " closed", other.ID + " not_due", overdue.ID + " closed"})
	want(t, "due times", []time.Time{out[0].Due, out[1].Due, out[2].Due},
		[]time.Time{before.CreatedAt.Add(time.Hour), after.CreatedAt.Add(5 * time.Minute), other.CreatedAt.Add(s.DueAt)})
	history := must.Get(s.OrderHistory(t.Context(), after.ID))(t)
	want(t, "due times of the history", []time.Time{history.Order.Due, history.Receipt.Due},
		[]time.Time{after.CreatedAt.Add(5 * time.Minute), after.CreatedAt.Add(5 * time.Minute)})
}

func ids(orders []orderclose.Order) (all []string) {
	for _, o := range orders {
		all = append(all, o.ID)
	}
	return all
}

func otherDelays(t *testing.T, s *mapped) {
	s.begin()
	s.must(s.CheckDelays(t.Context()))
	o := s.createdAgo(1, "book", time.Hour)
	for name, d := range map[string]orderclose.Delays{
		"an old file":         {Default: s.DueAt / 2},
		"a new category":      {Default: s.DueAt, ByCategory: map[string]time.Duration{"book": time.Minute}},
		"a rule of one group": {Default: s.DueAt, Rules: []orderclose.Rule{{Never: true}}},
	} {
		s.UseDelays(d)
		_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(o))
		for _, wrapped := range []error{store.ErrDelays, orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault} {
			expect.That(t, errors.Is(err, wrapped), "%s: a close returned %v, which is no %v", name, err, wrapped)
		}
		if err := s.CheckDelays(t.Context()); !errors.Is(err, store.ErrDelays) || !strings.Contains(err.Error(), "orderclose migrate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.use(orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"gift": time.Hour},
		Rules: []orderclose.Rule{{Match: orderclose.Match{Categories: []string{"gift"}}, Never: true}}})
	s.since("gift", time.Unix(0, 0))
	never := s.createdAgo(2, "gift", time.Hour)
	want(t, "orders", s.pages(s.now(), 10, ignorePage), []string{o.ID})
	want(t, "verdict on an order that is never due", verdicts(s.closing(never)), []string{never.ID + " not_due"})
	s.exec("UPDATE order_delays SET delay_us = -1")
	want(t, "orders if none is ever due", s.pages(s.now(), 10, ignorePage), nil)
	s.exec("UPDATE order_delays SET delay_us = ? WHERE category = ''", s.DueAt.Microseconds())
	s.use(orderclose.Delays{Default: s.DueAt})
	want(t, "verdict", verdicts(s.closing(o)), []string{o.ID + " closed"})
}

func noDelays(t *testing.T, s *mapped) {
	s.begin()
	s.exec("DELETE FROM order_delays")
	expect.Is(t, expect.Err(s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10)), store.ErrDelays, "a page")
	expect.Is(t, s.CheckDelays(t.Context()), store.ErrDelays, "the check")
}

func categoryLeaves(t *testing.T, s *mapped) {
	s.begin()
	s.use(orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"it's \\": time.Hour}})
	s.since("it's \\", time.Unix(1, 0))
	s.use(orderclose.Delays{Default: s.DueAt})
	want(t, "delays", s.texts("SELECT CONCAT(delay_us / 60000000) FROM order_delays WHERE category <> '' ORDER BY since_us")[1][:2], "30")
	s.since("it's \\", s.now().Add(-35*time.Minute))
	o, old := s.createdAgo(1, "it's \\", 32*time.Minute), s.createdAgo(2, "it's \\", 40*time.Minute)
	want(t, "verdicts", verdicts(s.closing(o, old)), []string{o.ID + " closed", old.ID + " not_due"})
}

// Random delays, changes of them, and orders: the database and this test compute the same due times, and each page has the orders
// of its span in their order.
func sameDueTimes(t *testing.T, s *mapped) {
	s.begin()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	categories := []string{"", "a", "B", "b", "c d"}
	type row struct {
		since time.Time
		delay time.Duration
	}
	s.exec("DELETE FROM order_delays")
	rows, now := map[string][]row{}, s.now().Truncate(time.Second)
	for _, c := range categories[:1+r.IntN(5)] {
		rows[c] = []row{{time.Unix(0, 0), time.Duration(1+r.IntN(3600)) * time.Second}}
		for range r.IntN(3) {
			rows[c] = append(rows[c], row{rows[c][len(rows[c])-1].since.Add(time.Duration(1+r.IntN(5)) * time.Second),
				[]time.Duration{time.Minute, time.Hour, 1500 * time.Millisecond}[r.IntN(3)]})
			rows[c][len(rows[c])-1].since = now.Add(-time.Duration(3600-len(rows[c])*600-r.IntN(600)) * time.Second)
		}
		for _, w := range rows[c] {
			s.exec("INSERT INTO order_delays (pipeline, category, since_us, delay_us) VALUES ('', ?, ?, ?)", c, w.since.UnixMicro(), w.delay.Microseconds())
		}
	}
	due := map[string]time.Time{}
	var orders []orderclose.Order
	for n := range 150 {
		o := s.createdAgo(n+1, categories[r.IntN(len(categories))], time.Duration(r.IntN(7200))*time.Second)
		of := rows[o.Category]
		if s.Mapping.Category == "" || of == nil {
			of = rows[""]
		}
		for _, w := range of {
			if !w.since.After(o.CreatedAt) {
				due[o.ID] = o.CreatedAt.Add(w.delay)
			}
		}
		o.Due = due[o.ID]
		orders = append(orders, o)
	}
	var expected []string
	for _, id := range slices.SortedFunc(maps.Keys(due), func(a, b string) int {
		if c := due[a].Compare(due[b]); c != 0 {
			return c
		}
		return s.Mapping.WithDefaults().ID.Compare(a, b)
	}) {
		if !due[id].After(now) {
			expected = append(expected, id)
		}
	}
	for _, limit := range []int{1, 13, 1000} {
		got := s.pages(now, limit, func(page []orderclose.Order) {
			for _, o := range page {
				want(t, "due time of "+o.ID, o.Due, due[o.ID].UTC())
			}
		})
		want(t, fmt.Sprintf("orders in pages of %d", limit), got, expected)
	}
	s.wantTurns(now, expected, 13, 0)
	for _, o := range s.preview(orders) {
		want(t, "due time of "+o.OrderID, o.Due, due[o.OrderID].UTC())
	}
}

func (s *mapped) preview(orders []orderclose.Order) []orderclose.Outcome {
	s.Helper()
	return must.Get(s.PreviewClose(s.Context(), "", ask(orders...)))(s)
}
