package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Shop is a shop with its own tables, and their mapping.
type Shop struct {
	Title   string
	Mapping *mapping.Mapping
	// DDL creates the tables. A statement that contains Month is run for each month that a test needs, with that month in its place.
	DDL   []string
	Month string
	// DueFrom is the column from which the due column is generated, DueAt later; empty: the due column is written.
	DueFrom string
	DueAt   time.Duration
	// Paid is the status of a paid order. SKUs are two SKUs of the stock.
	Paid mapping.Value
	SKUs [2]string
	// ID returns the n-th order id.
	ID func(n int) string
}

// RunMapped tests the promises of the store on a shop's own tables, one after the other. Shops run in parallel.
func RunMapped(t *testing.T, own Shop, server Server) { runMapped(t, own, server, mappedPromises) }

// runMapped plays promises on a shop's own tables.
func runMapped(t *testing.T, own Shop, server Server, promises []promise[mapped]) {
	t.Run(own.Title, func(t *testing.T) {
		t.Parallel()
		on := server.databases(t, own.Mapping, own.create)
		play(t, server, promises, func(t *testing.T, p promise[mapped]) {
			p.test(t, &mapped{shop: on.shop(t, p.tags), Shop: own})
		})
	})
}

var mappedPromises = []promise[mapped]{
	{name: "ALineRemovedDuringACloseIsReturnedOnce", test: mappedLines, tags: Dialect},
	{name: "MigrateCreatesOnlyOurTables", test: onlyOurTables, tags: Empty},
	{name: "ClosesOnlyDueOrders", test: closesOnlyDue, tags: Dialect},
	{name: "NeverBeforeDue", test: mappedNeverBeforeDue, tags: Dialect},
	{name: "ABatchIsOneTransaction", test: mappedInOneTransaction},
	{name: "PagesVisitEveryOverdueOrderOnce", test: mappedPages},
	{name: "DueBetweenVisitsEveryOrderOfTheSpanOnce", test: mappedBetween},
	{name: "CountsOverdueOrders", test: mappedCount},
	{name: "AnOrderWithoutDueTimeIsNeverClosed", test: mappedNoDue, tags: Dialect},
	{name: "AnOrderThatIsNeverDueIsNeverClosed", test: mappedNever, tags: Dialect},
	{name: "IdsThatNoOrderMayHaveAreNamed", test: mappedRefusedIDs, tags: Dialect},
	{name: "AnOrderOfAnotherMonthIsFound", test: mappedOtherMonth},
	{name: "AMonthThatDoesNotFitStopsNoOther", test: unfitMonth, tags: Dialect},
	{name: "ATrialCloseIsRolledBack", test: triedMapped, tags: Dialect},
	{name: "TheTablesFit", test: tablesFit, tags: Dialect | Empty},
	{name: "PreviewsAndPays", test: payOrdersMapped},
	{name: "APaymentIsRecordedOnce", test: recordPaymentsMapped},
	{name: "AnAuditReadsAllTables", test: auditMapped},
	{name: "APreviewReadsTheShopsTablesOnly", test: previewMapped, tags: Empty},
	{name: "ExcludedOrdersStayAsTheyAre", test: mappedExcluded},
	{name: "CategoriesAreThoseOfTheOrdersThatExist", test: categoriesMapped},
	{name: "RemindsUnpaidOrdersOnce", test: mappedReminders},
}

// create creates the tables of the shop, with shards for the last six months and the next one, and migrates.
func (own Shop) create(ctx context.Context, s *store.Store) error {
	today, err := s.Now(ctx)
	if err != nil {
		return err
	}
	for _, ddl := range own.DDL {
		months := []string{own.Month}
		if own.Month != "" && strings.Contains(ddl, own.Month) {
			months = nil
			for back := -1; back < 6; back++ { // the next month has begun in some time zone
				months = append(months, own.month(monthsBefore(today, back)))
			}
		}
		for _, month := range months {
			if _, err := s.DB().ExecContext(ctx, strings.ReplaceAll(ddl, cmp.Or(own.Month, month), month)); err != nil {
				return fmt.Errorf("%s: %w", ddl, err)
			}
		}
	}
	return s.Migrate(ctx)
}

// monthsBefore returns a time in the middle of a month.
func monthsBefore(today time.Time, n int) time.Time {
	return time.Date(today.Year(), today.Month()-time.Month(n), 15, 12, 0, 0, 0, time.UTC)
}

// month returns the month of t as the table names write it.
func (own Shop) month(t time.Time) string {
	loc := time.UTC
	if own.Mapping.Shards != nil {
		loc, _ = mapping.ParseZone(own.Mapping.Shards.Zone)
	}
	return t.In(loc).Format("200601")
}

// mapped is a shop's own tables under test.
type mapped struct {
	*shop
	Shop
	due, created mapping.Codec
	today        time.Time
}

// begin creates the shop's tables if there are none yet, and fills its stock.
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
	if s.dsn == "" {
		s.must(s.create(s.Context(), s.Store))
	}
	if s.Mapping.ByRule {
		s.UseDelays(orderclose.Delays{Default: s.DueAt})
		s.must(s.RecordDelays(s.Context()))
	}
	for _, stock := range s.Mapping.Stock {
		for _, sku := range s.SKUs {
			columns, values := mapping.Quote(stock.SKU.Column), "?"
			if stock.Available != "" {
				columns, values = columns+", "+mapping.Quote(stock.Available), values+", 900"
			}
			if stock.Reserved != "" {
				columns, values = columns+", "+mapping.Quote(stock.Reserved), values+", 1000"
			}
			s.exec("INSERT INTO "+mapping.Quote(stock.Table)+" ("+columns+") VALUES ("+values+")", sku)
		}
	}
}

// monthsAgo returns a time in the middle of a month.
func (s *mapped) monthsAgo(n int) time.Time { return monthsBefore(s.today, n) }

// table returns the name of the table to which a row belongs.
func (s *mapped) table(pattern string, created time.Time) string {
	return strings.NewReplacer("{yyyyMM}", s.month(created)).Replace(pattern)
}

// put inserts orders with this status, each with two of one SKU and three of the other in two lines, if the shop has lines.
func (s *mapped) put(status mapping.Value, orders ...orderclose.Order) {
	s.Helper()
	m := s.Mapping
	for i, o := range orders {
		if slices.Contains(m.Status.From, status) { // unpaid orders have each of the statuses in turn
			status = m.Status.From[i%len(m.Status.From)]
		}
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
		if m.Created != nil && !m.ByRule {
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
	return must.Get(s.CloseOrders(s.Context(), orderclose.PathPipeline, ask(orders...)))(s)
}

// checkHistory checks that OrderHistory reads an order and its lines from the shop's own tables.
func (s *mapped) checkHistory(o orderclose.Order, closed time.Time) {
	s.Helper()
	history := must.Get(s.Store.OrderHistory(s.Context(), o.ID))(s)
	must.That(s, history.Order != nil && history.Receipt != nil, "the history of order %s has no row or no receipt: %+v", o.ID, history)
	want(s, "state", history.Order.State, s.Mapping.Status.To.Text)
	want(s, "due time", history.Order.Due, o.Due)
	for _, a := range s.Mapping.Attributes {
		text := s.texts("SELECT CASE WHEN "+mapping.Quote(a.Column)+" IS NULL THEN '-' ELSE CONCAT("+mapping.Quote(a.Column)+") END"+
			" FROM "+mapping.Quote(s.table(s.Mapping.Orders, o.CreatedAt))+" WHERE "+mapping.Quote(s.Mapping.ID.Column)+" = ?", o.ID)
		if got, has := history.Order.Attributes[a.Name]; has != (text[0] != "-") || has && fmt.Sprint(got) != text[0] {
			s.Errorf("the attribute %s is %v (%v), and the column has %q", a.Name, got, has, text)
		}
	}
	want(s, "time of the close", history.Receipt.ClosedAt, closed)
	if s.Mapping.Items != nil {
		want(s, "lines", len(history.Items), 2)
	}
}

// checkReleased checks that the stock of one order was released and is in the ledger.
func (s *mapped) checkReleased(o orderclose.Order) {
	s.Helper()
	if s.Mapping.Items == nil {
		want(s, "ledger", s.ledger(), nil)
		return
	}
	want(s, "ledger", s.ledger(), []string{o.ID + " " + s.SKUs[0] + " close 2", o.ID + " " + s.SKUs[1] + " close 3"})
	for _, stock := range s.Mapping.Stock {
		for column, back := range map[string][]string{stock.Available: {"902", "903"}, stock.Reserved: {"998", "997"}} {
			if column != "" {
				want(s, column, s.texts("SELECT CONCAT("+mapping.Quote(column)+") FROM "+mapping.Quote(stock.Table)+
					" ORDER BY "+mapping.Quote(stock.SKU.Column)), back)
			}
		}
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
	if want(s, "columns of the event", len(got.Columns), len(s.Mapping.EventColumns)); len(got.Columns) > 0 {
		expected.Columns = got.Columns
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
