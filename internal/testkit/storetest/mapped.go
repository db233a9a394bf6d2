package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// Shop is a shop with its own tables, and their mapping.
type Shop struct {
	Title   string
	Mapping *mapping.Mapping
	// DDL creates the tables. A statement that contains Month is run for each month that a
	// test needs, with that month in its place.
	DDL   []string
	Month string
	// DueFrom is the column from which the due column is generated, DueAt later; empty: the
	// due column is written.
	DueFrom string
	DueAt   time.Duration
	// Paid is the status of a paid order. SKUs are two SKUs of the stock.
	Paid mapping.Value
	SKUs [2]string
	// ID returns the n-th order id.
	ID func(n int) string
}

// RunMapped tests the promises of the store on a shop's own tables. open returns a store with
// the mapping on a new, empty database.
func RunMapped(t *testing.T, own Shop, open func(t *testing.T, m *mapping.Mapping) *store.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *mapped)
	}{
		{"MigrateCreatesOnlyOurTables", onlyOurTables},
		{"ClosesOnlyDueOrders", closesOnlyDue},
		{"NeverBeforeDue", mappedNeverBeforeDue},
		{"ABatchIsOneTransaction", mappedInOneTransaction},
		{"PagesVisitEveryOverdueOrderOnce", mappedPages},
		{"DueBetweenVisitsEveryOrderOfTheSpanOnce", mappedBetween},
		{"CountsOverdueOrders", mappedCount},
		{"AnOrderWithoutDueTimeIsNeverClosed", mappedNoDue},
		{"AnOrderOfAnotherMonthIsFound", mappedOtherMonth},
		{"TheTablesFit", tablesFit},
		{"PreviewsAndPays", payOrdersMapped},
		{"AnAuditReadsAllTables", auditMapped},
	} {
		t.Run(own.Title+"/"+c.name, func(t *testing.T) {
			s := &mapped{shop: &shop{T: t, Store: open(t, own.Mapping)}, Shop: own}
			c.test(t, s)
		})
	}
}

// mapped is a shop's own tables under test.
type mapped struct {
	*shop
	Shop
	due, created mapping.Codec
	today        time.Time
}

// begin creates the shop's tables, with shards for the last six months and the next one, and
// migrates.
func (s *mapped) begin() {
	s.Helper()
	var err error
	s.due, err = s.Mapping.Due.Codec()
	s.must(err)
	if s.Mapping.Created != nil {
		s.created, err = s.Mapping.Created.Codec()
		s.must(err)
	}
	s.today = s.now()
	for _, ddl := range s.DDL {
		if s.Month == "" || !strings.Contains(ddl, s.Month) {
			s.exec(ddl)
			continue
		}
		for back := -1; back < 6; back++ { // the next month has begun in some time zone
			s.exec(strings.ReplaceAll(ddl, s.Month, s.month(s.monthsAgo(back))))
		}
	}
	s.must(s.Migrate(s.Context()))
	if stock := s.Mapping.Stock; stock != nil {
		for _, sku := range s.SKUs {
			columns, values := mapping.Quote(stock.SKU.Column)+", "+mapping.Quote(stock.Available), "?, 900"
			if stock.Reserved != "" {
				columns, values = columns+", "+mapping.Quote(stock.Reserved), values+", 1000"
			}
			s.exec("INSERT INTO "+mapping.Quote(stock.Table)+" ("+columns+") VALUES ("+values+")", sku)
		}
	}
}

// monthsAgo returns a time in the middle of a month.
func (s *mapped) monthsAgo(n int) time.Time {
	return time.Date(s.today.Year(), s.today.Month()-time.Month(n), 15, 12, 0, 0, 0, time.UTC)
}

// month returns the month of t as the table names write it.
func (s *mapped) month(t time.Time) string {
	loc := time.UTC
	if s.Mapping.Shards != nil {
		loc, _ = mapping.ParseZone(s.Mapping.Shards.Zone)
	}
	return t.In(loc).Format("200601")
}

// table returns the name of the table to which a row belongs.
func (s *mapped) table(pattern string, created time.Time) string {
	return strings.NewReplacer("{yyyyMM}", s.month(created)).Replace(pattern)
}

// put inserts orders with this status, each with two of one SKU and three of the other in two
// lines, if the shop has lines.
func (s *mapped) put(status mapping.Value, orders ...orderclose.Order) {
	s.Helper()
	m := s.Mapping
	for _, o := range orders {
		columns, args := []string{m.ID.Column, m.Status.Column}, []any{o.ID, status.Arg()}
		due := m.Due.Column
		if s.DueFrom != "" {
			due = s.DueFrom
		}
		if !o.Due.IsZero() {
			columns, args = append(columns, due), append(args, s.due.Arg(o.Due.Add(-s.DueAt)))
		} else if s.due.Oldest() == any(int64(1)) {
			columns, args = append(columns, due), append(args, 0)
		}
		if m.Created != nil {
			columns, args = append(columns, m.Created.Column), append(args, s.created.Arg(o.CreatedAt))
		}
		if m.Category != "" && o.Category != "" {
			columns, args = append(columns, m.Category), append(args, o.Category)
		}
		s.insert(s.table(m.Orders, o.CreatedAt), columns, args)
		if m.Items == nil {
			continue
		}
		for i, quantity := range []int{2, 3} {
			s.insert(s.table(m.Items.Table, o.CreatedAt), []string{m.Items.Order, m.Items.SKU, m.Items.Quantity}, []any{o.ID, s.SKUs[i], quantity})
		}
	}
}

func (s *mapped) insert(table string, columns []string, args []any) {
	s.Helper()
	for i, c := range columns {
		columns[i] = mapping.Quote(c)
	}
	s.exec("INSERT INTO "+mapping.Quote(table)+" ("+strings.Join(columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(args)-1)+")", args...)
}

// an returns the n-th order, which is due in the given time from now.
func (s *mapped) an(n int, in time.Duration) orderclose.Order {
	due := s.now().Add(in).Truncate(time.Second)
	return orderclose.Order{ID: s.ID(n), Category: "book", CreatedAt: s.today.Add(-time.Hour), Due: due}
}

// ask returns close requests as records would make them.
func ask(orders ...orderclose.Order) []orderclose.CloseRequest {
	reqs := make([]orderclose.CloseRequest, len(orders))
	for i, o := range orders {
		reqs[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
	}
	return reqs
}

func (s *mapped) closing(orders ...orderclose.Order) []orderclose.Outcome {
	s.Helper()
	out, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, ask(orders...))
	s.must(err)
	return out
}

func onlyOurTables(t *testing.T, s *mapped) {
	s.must(s.Migrate(t.Context()))
	s.must(s.Migrated(t.Context()))
	var printed strings.Builder
	s.must(store.WriteMigrations(&printed, string(s.Dialect()), true))
	for _, table := range []string{"orders", "order_items", "stock"} {
		if _, err := s.DB().ExecContext(t.Context(), "SELECT 1 FROM "+table); err == nil {
			t.Errorf("table %s exists", table)
		}
		for statement := range strings.SplitSeq(withoutComments(printed.String()), ";") {
			if slices.Contains(strings.Fields(strings.ReplaceAll(statement, "`", "")), table) {
				t.Errorf("table %s is in the printed schema: %s", table, statement)
			}
		}
	}
	s.count("SELECT COUNT(*) FROM receipts")
}

func closesOnlyDue(t *testing.T, s *mapped) {
	s.begin()
	overdue, later, paid, closed, gone := s.an(1, -time.Minute), s.an(2, time.Hour), s.an(3, -time.Minute), s.an(4, -time.Minute), s.an(5, -time.Minute)
	s.put(s.Mapping.Status.From, overdue, later)
	s.put(s.Paid, paid)
	s.put(s.Mapping.Status.To, closed)
	out := s.closing(later, overdue, gone, paid, closed, overdue)
	want(t, "verdicts", verdicts(out), []string{
		later.ID + " not_due", overdue.ID + " closed", gone.ID + " not_found", paid.ID + " already_paid", closed.ID + " already_closed", overdue.ID + " already_closed",
	})
	want(t, "due times", []time.Time{out[0].Due, out[1].Due}, []time.Time{later.Due, overdue.Due})
	if out[1].At.Before(overdue.Due) {
		t.Errorf("closed at %v, due %v", out[1].At, overdue.Due)
	}
	again := s.closing(overdue)
	want(t, "verdict on a repeat", again[0].Verdict, orderclose.AlreadyClosed)
	want(t, "receipts", s.texts("SELECT order_id FROM receipts"), []string{overdue.ID})
	s.checkHistory(overdue, out[1].At)
	s.checkReleased(overdue)
	s.checkEvent(overdue, out[1].At)
	if c := s.Mapping.ClosedAt; c != nil {
		codec, err := c.Codec()
		s.must(err)
		want(t, "orders with the time of the close", s.count("SELECT COUNT(*) FROM "+mapping.Quote(s.Mapping.Orders)+" WHERE "+mapping.Quote(c.Column)+" = ?", codec.Arg(out[1].At)), 1)
	}
}

// checkHistory checks that History reads an order from the shop's own tables.
func (s *mapped) checkHistory(o orderclose.Order, closed time.Time) {
	s.Helper()
	history, err := s.Store.OrderHistory(s.Context(), o.ID)
	s.must(err)
	if history.Order == nil || history.Receipt == nil {
		s.Fatalf("the history of order %s has no row or no receipt: %+v", o.ID, history)
	}
	want(s, "state", history.Order.State, s.Mapping.Status.To.Text)
	want(s, "due time", history.Order.Due, o.Due)
	want(s, "time of the close", history.Receipt.ClosedAt, closed)
	if s.Mapping.Items != nil {
		want(s, "lines", len(history.Items), 2)
	}
	if _, err := s.CheckStock(s.Context(), nil); !errors.Is(err, store.ErrOwnTables) {
		s.Errorf("checking the stock in a shop's own tables: %v", err)
	}
}

// checkReleased checks that the stock of one order was released and is in the ledger.
func (s *mapped) checkReleased(o orderclose.Order) {
	s.Helper()
	if s.Mapping.Items == nil {
		want(s, "rows in the ledger", s.count("SELECT COUNT(*) FROM stock_ledger"), 0)
		return
	}
	want(s, "ledger", s.ledger(), []string{o.ID + " " + s.SKUs[0] + " close 2", o.ID + " " + s.SKUs[1] + " close 3"})
	if stock := s.Mapping.Stock; stock != nil {
		reserved, back := "0", []string{"902 0", "903 0"}
		if stock.Reserved != "" {
			reserved, back = mapping.Quote(stock.Reserved), []string{"902 998", "903 997"}
		}
		want(s, "stock", s.texts("SELECT CONCAT_WS(' ', "+mapping.Quote(stock.Available)+", "+reserved+") FROM "+mapping.Quote(stock.Table)+
			" ORDER BY "+mapping.Quote(stock.SKU.Column)), back)
	}
}

func (s *mapped) checkEvent(o orderclose.Order, at time.Time) {
	s.Helper()
	payloads := s.texts("SELECT payload FROM outbox_events")
	want(s, "events", len(payloads), 1)
	kind := s.Mapping.WithDefaults().Event
	id, got, err := orderclose.DecodeClosed(store.ExpandEvent(o.ID, []byte(payloads[0])), kind)
	s.must(err)
	expected := orderclose.OrderClosed{OrderID: o.ID, Due: o.Due, ClosedAt: at, Path: orderclose.PathPipeline}
	if kind != orderclose.EventOrderClosed {
		expected.Type = kind
	}
	if s.Mapping.Category != "" {
		expected.Category = o.Category
	}
	if s.Mapping.Version != "" {
		expected.Version = 2
	}
	if s.Mapping.Items != nil {
		for i, quantity := range []int64{2, 3} {
			expected.Release = append(expected.Release, orderclose.Release{SKU: s.SKUs[i], Quantity: quantity, Key: wire.ReleaseKey(o.ID, s.SKUs[i], "close")})
		}
	}
	want(s, "event", got, expected)
	want(s, "event's id", id, kind+"/"+o.ID)
}

// One order for each step of the column's precision around now: an order is closed if its due
// time is not after the time of the close.
func mappedNeverBeforeDue(t *testing.T, s *mapped) {
	s.begin()
	s.Mapping = s.Mapping.WithDefaults()
	var orders []orderclose.Order
	for n := range 120 {
		o := s.an(n+1, 0)
		o.Due = s.today.Add(time.Duration(n-60) * 100 * time.Millisecond).Truncate(100 * time.Millisecond)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From, orders...)
	out := s.closing(orders...)
	for i, o := range out {
		late := o.At.Sub(orders[i].Due)
		if o.Due.Before(orders[i].Due.Add(-time.Second)) || o.Due.After(orders[i].Due) {
			t.Fatalf("order %s is due at %v, and was read as %v", o.OrderID, orders[i].Due, o.Due)
		}
		if closed := o.Verdict == orderclose.Closed; closed != !o.Due.After(o.At) {
			t.Errorf("order %s, due at %v, was %s at %v, %v after", o.OrderID, o.Due, o.Verdict, o.At, late)
		}
	}
}

// A batch with orders in all tables: one fails, and nothing changes.
func mappedInOneTransaction(t *testing.T, s *mapped) {
	s.begin()
	var orders []orderclose.Order
	for n := range 12 {
		o := s.an(n+1, -time.Minute)
		o.CreatedAt = s.monthsAgo(n % 6)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From, orders...)
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES (?, 'closed', ?, ?, 'sweep', 0, 0)",
		orders[7].ID, s.time(s.today), s.time(s.today))
	if _, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(orders...)); err == nil {
		t.Error("a second receipt was written")
	}
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 1)
	s.must(s.Probe(t.Context()))
	rest := slices.Delete(slices.Clone(orders), 7, 8)
	for _, o := range s.closing(rest...) {
		want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
	}
	want(t, "receipts", s.count("SELECT COUNT(*) FROM receipts"), 12)
}

// putThroughMonths inserts ten unpaid orders into every month's table, some due at the same
// time, and returns the overdue orders in page order.
func (s *mapped) putThroughMonths() (orders []orderclose.Order) {
	s.Helper()
	for n := range 60 {
		o := orderclose.Order{ID: s.ID(1000 + n), CreatedAt: s.monthsAgo(5 - n/10)}
		o.Due = o.CreatedAt.Add(time.Duration(n/7) * time.Second)
		if o.Due.Before(s.today) { // the middle of this month may be in the future
			orders = append(orders, o)
		}
	}
	s.put(s.Mapping.Status.From, orders...)
	return orders
}

func mappedPages(t *testing.T, s *mapped) {
	s.begin()
	ids := idsDue(s.putThroughMonths(), time.Time{}, s.today)
	paid := orderclose.Order{ID: s.ID(2000), CreatedAt: s.monthsAgo(1), Due: s.monthsAgo(1)}
	s.put(s.Paid, paid)
	for _, limit := range []int{1, 7, 100} {
		want(t, fmt.Sprintf("orders in pages of %d", limit), s.pages(s.now(), limit, func([]orderclose.Order) {}), ids)
	}
	want(t, "orders while they are closed", s.pages(s.now(), 7, func(page []orderclose.Order) {
		for _, o := range s.closing(page...) {
			want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
		}
	}), ids)
	want(t, "orders afterwards", s.pages(s.now(), 7, func([]orderclose.Order) {}), nil)
}

func mappedNoDue(t *testing.T, s *mapped) {
	s.begin()
	without, overdue := s.an(1, 0), s.an(2, -time.Minute)
	without.Due = time.Time{}
	s.put(s.Mapping.Status.From, without, overdue)
	out := s.closing(without, overdue)
	want(t, "verdicts", verdicts(out), []string{without.ID + " failed", overdue.ID + " closed"})
	if out[0].Err == nil {
		t.Error("the outcome has no error")
	}
	want(t, "orders in pages", s.pages(s.now(), 10, func([]orderclose.Order) {}), nil)
}

// Records whose times are of another month than the row, and a record without times.
func mappedOtherMonth(t *testing.T, s *mapped) {
	s.begin()
	var orders []orderclose.Order
	for n := range 4 {
		o := s.an(n+1, -time.Minute)
		o.CreatedAt = s.monthsAgo(2)
		orders = append(orders, o)
	}
	s.put(s.Mapping.Status.From, orders...)
	orders[0].CreatedAt, orders[1].CreatedAt, orders[2].CreatedAt, orders[3].CreatedAt = s.monthsAgo(1), s.monthsAgo(3), time.Time{}, s.monthsAgo(20)
	orders[2].Due = time.Time{}
	for _, o := range s.closing(orders...) {
		want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
	}
}

func tablesFit(t *testing.T, s *mapped) {
	if s.Dialect() == store.SQLite {
		t.Skip("SQLite's tables are not looked at")
	}
	if err := s.CheckMapping(t.Context()); err == nil {
		t.Error("missing tables are not reported")
	}
	s.begin()
	s.must(s.CheckMapping(t.Context()))
	table := s.table(s.Mapping.Orders, s.today)
	s.exec("ALTER TABLE " + mapping.Quote(table) + " DROP COLUMN " + mapping.Quote(s.Mapping.Due.Column))
	if err := s.CheckMapping(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no column "+table+"."+s.Mapping.Due.Column) {
		t.Errorf("without the due column: %v", err)
	}
}
