package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// RunByKey tests sweeps by the primary key, for a shop whose mapping has due times by rule and a category, and whose table of orders has
// no index on status and creation.
func RunByKey(t *testing.T, own Shop, server Server) {
	t.Run(own.Title+"_by_key", func(t *testing.T) {
		t.Parallel()
		on := server.databases(t, own.Mapping, own.create)
		play(t, server, keyPromises, func(t *testing.T, p promise[keyed]) {
			run := func(t *testing.T) {
				s := &keyed{&mapped{shop: on.shop(t, p.tags), Shop: own}}
				s.begin()
				s.use(orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"presale": 24 * time.Hour}})
				s.since("presale", time.Unix(0, 0))
				p.test(t, s)
			}
			if server.DSN == "" {
				synctest.Test(t, run) // SQLite has the clock of this process
			} else {
				run(t)
			}
		})
	})
}

var keyPromises = []promise[keyed]{
	{name: "TheMarkStaysBelowUnpaidOrders", test: markBelowUnpaid},
	{name: "AnOrderThatIsUnpaidAgainIsFoundInADay", test: unpaidAgain},
	{name: "ACartThatBecomesAnOrderIsFound", test: cartBecomesOrder},
	{name: "AnEmptiedTableIsReadFromItsBeginning", test: emptied},
	{name: "ALateCommitIsFound", test: lateCommit, tags: Dialect},
	{name: "ManyRowsAreNotReadAgainAtOnce", test: readSeldom},
	{name: "ADryRunMovesNoMark", test: dryRun},
	{name: "AnIndexIsUsedAsSoonAsAnotherProcessStarts", test: indexAdded, tags: Dialect},
}

// old is older than the longest delay and the longest checkout.
const old = 26 * time.Hour

// keyed is a shop whose orders are found by their primary key.
type keyed struct{ *mapped }

// order inserts an order that was created some time ago.
func (s *keyed) order(n int, status mapping.Value, category string, ago time.Duration) orderclose.Order {
	s.Helper()
	o := orderclose.Order{ID: s.ID(n), Category: category, CreatedAt: s.now().Add(-ago).Truncate(time.Second)}
	o.Due = o.CreatedAt.Add(s.DueAt) // put takes it off again
	s.put(status, o)
	return o
}

// closed inserts closed orders with the ids from first to last.
func (s *keyed) closed(first, last int, ago time.Duration) {
	s.Helper()
	for n := first; n <= last; n++ {
		s.order(n, s.Mapping.Status.To, "", ago)
	}
}

func (s *keyed) setStatus(n int, status mapping.Value) {
	s.Helper()
	s.exec("UPDATE "+mapping.Quote(s.Mapping.Orders)+" SET "+mapping.Quote(s.Mapping.Status.Column)+" = ? WHERE "+mapping.Quote(s.Mapping.ID.Column)+" = ?", status.Arg(), s.ID(n))
}

// sweep sweeps with a store, and returns how many orders it has closed.
func (s *keyed) sweep(with *store.Store, dry bool) int {
	s.Helper()
	if s.lacks(rowLocks) {
		time.Sleep(time.Millisecond) // virtual time stands still otherwise
	}
	with.UseDelays(orderclose.Delays{Default: s.DueAt, ByCategory: map[string]time.Duration{"presale": 24 * time.Hour}})
	c, err := compensator.New(compensator.Options{Store: with, SweepLog: with, Name: "sweep", Grace: -1})
	s.must(err)
	report, err := c.Sweep(s.Context(), dry)
	s.must(err)
	return report.Closed
}

// mark returns the low-water mark; -1: there is none.
func (s *keyed) mark() int {
	s.Helper()
	return s.count("SELECT COALESCE((SELECT order_id FROM sweeps WHERE name LIKE '%/mark'), -1)")
}

func markBelowUnpaid(t *testing.T, s *keyed) {
	s.closed(1, 3, old)
	s.order(4, s.Mapping.Status.From, "presale", 150*time.Minute)
	s.closed(5, 6, old)
	s.closed(7, 7, 10*time.Minute)
	s.order(8, s.Mapping.Status.From, "", 40*time.Minute)
	want(t, "closed orders", s.sweep(s.Store, false), 1)
	want(t, "mark", s.mark(), 3)
	s.setStatus(4, s.Paid)
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	want(t, "mark behind an order that is young", s.mark(), 3)
	s.exec("DELETE FROM "+mapping.Quote(s.Mapping.Orders)+" WHERE "+mapping.Quote(s.Mapping.ID.Column)+" = ?", s.ID(4))
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	want(t, "mark behind orders that are old", s.mark(), 6)
	s.order(9, s.Mapping.Status.From, "presale", 25*time.Hour)
	want(t, "closed by another process", s.sweep(s.another(), false), 1)
}

func unpaidAgain(t *testing.T, s *keyed) {
	s.closed(1, 9, old)
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	want(t, "mark", s.mark(), 9)
	s.setStatus(4, s.Mapping.Status.From)
	want(t, "closed orders within a day", s.sweep(s.Store, false), 0)
	s.exec("UPDATE sweeps SET finished_at = ? WHERE name LIKE '%/again'", s.time(s.now().Add(-24*time.Hour)))
	want(t, "closed by the sweep that reads all orders", s.sweep(s.Store, false), 0)
	want(t, "mark", s.mark(), 3)
	want(t, "closed by another process", s.sweep(s.another(), false), 1)
	want(t, "closed by the first process", s.sweep(s.Store, false), 0)
	want(t, "mark", s.mark(), 9)
}

// cartBecomesOrder is for a shop that gives an id to a cart, and the time of creation only later.
func cartBecomesOrder(t *testing.T, s *keyed) {
	m := s.Mapping
	for n := 1; n <= 2; n++ {
		s.exec("INSERT INTO "+mapping.Quote(m.Orders)+" ("+mapping.Quote(m.ID.Column)+", "+mapping.Quote(m.Status.Column)+", "+mapping.Quote(m.Due.Column)+") VALUES (?, ?, NULL)", s.ID(n), s.Paid.Arg())
	}
	s.closed(3, 4, old)
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	want(t, "mark below the carts", s.mark(), 0)
	for n, with := range []*store.Store{s.Store, s.another()} {
		s.exec("UPDATE "+mapping.Quote(m.Orders)+" SET "+mapping.Quote(m.Due.Column)+" = ?, "+mapping.Quote(m.Status.Column)+" = ? WHERE "+mapping.Quote(m.ID.Column)+" = ?",
			s.due.Arg(s.now().Add(-40*time.Minute)), m.Status.From.Arg(), s.ID(n+1))
		want(t, "closed orders", s.sweep(with, false), 1)
	}
}

func emptied(t *testing.T, s *keyed) {
	s.closed(101, 104, old)
	other := s.another()
	want(t, "closed orders", s.sweep(other, false)+s.sweep(s.Store, false), 0)
	want(t, "mark", s.mark(), 104)
	s.exec("DELETE FROM " + mapping.Quote(s.Mapping.Orders))
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	want(t, "mark of an empty table", s.mark(), 0)
	for n, with := range []*store.Store{s.Store, other, s.another()} {
		s.order(1+n, s.Mapping.Status.From, "", 2*time.Hour)
		want(t, fmt.Sprintf("closed by process %d", n), s.sweep(with, false), 1)
	}
}

// lateCommit plays a checkout that gets its id before others, and commits after them and after a sweep.
func lateCommit(t *testing.T, s *keyed) {
	s.needs(rowLocks)
	m := s.Mapping
	s.order(1, m.Status.From, "", 40*time.Minute)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	s.must(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "INSERT INTO "+mapping.Quote(m.Orders)+" ("+mapping.Quote(m.ID.Column)+", "+mapping.Quote(m.Status.Column)+", "+mapping.Quote(m.Due.Column)+") VALUES (?, ?, ?)",
		s.ID(2), m.Status.From.Arg(), s.due.Arg(s.now().Add(-40*time.Minute)))
	s.must(err)
	s.order(3, m.Status.From, "", 40*time.Minute)
	want(t, "closed before the commit", s.sweep(s.Store, false), 2)
	s.must(tx.Commit())
	want(t, "closed after the commit", s.sweep(s.Store, false), 1)
	want(t, "mark before young orders", s.mark(), 0)
}

// readSeldom is in virtual time on SQLite. A server may take seconds for a sweep.
func readSeldom(t *testing.T, s *keyed) {
	s.bulkClosed(3000, old)
	want(t, "closed orders", s.sweep(s.Store, false), 0)
	s.order(3001, s.Mapping.Status.From, "", 40*time.Minute)
	if s.lacks(rowLocks) {
		want(t, "closed orders at once", s.sweep(s.Store, false), 0)
	}
	Await(t, "a sweep closes the order", func() (string, bool) { return "no order", s.sweep(s.Store, false) == 1 })
}

// bulkClosed inserts closed orders without lines with the ids from 1 to n.
func (s *keyed) bulkClosed(n int, ago time.Duration) {
	s.Helper()
	m, args := s.Mapping, []any{}
	rows := ""
	for i := range n {
		rows += ", (?, ?, ?)"
		args = append(args, s.ID(i+1), m.Status.To.Arg(), s.due.Arg(s.now().Add(-ago)))
		if len(args) == 3000 || i == n-1 {
			s.exec("INSERT INTO "+mapping.Quote(m.Orders)+" ("+mapping.Quote(m.ID.Column)+", "+mapping.Quote(m.Status.Column)+", "+mapping.Quote(m.Due.Column)+") VALUES "+rows[2:], args...)
			rows, args = "", nil
		}
	}
}

func dryRun(t *testing.T, s *keyed) {
	s.closed(1, 2, 3*time.Hour)
	s.order(3, s.Mapping.Status.From, "", 2*time.Hour)
	want(t, "closed orders", s.sweep(s.Store, true), 0)
	want(t, "mark", s.mark(), -1)
	orders, _, more, err := s.OverdueNow(t.Context(), 0)
	s.must(err)
	want(t, "overdue now", ids(orders), []string{s.ID(3)})
	want(t, "more", more, false)
}

// indexAdded adds the index that CheckMapping would print without a growing key.
func indexAdded(t *testing.T, s *keyed) {
	m := s.Mapping
	s.order(1, m.Status.From, "", 2*time.Hour)
	s.must(s.CheckMapping(t.Context()))
	hints, err := s.MappingHints(t.Context())
	s.must(err)
	want(t, "hints on the index", slices.ContainsFunc(hints, mentionsIndex), !s.lacks(describedTables))
	s.exec("CREATE INDEX of_sweeps ON " + mapping.Quote(m.Orders) + " (" + mapping.Quote(m.Status.Column) + ", " + mapping.Quote(m.Due.Column) + ", " + mapping.Quote(m.ID.Column) + ")")
	with := s.another()
	want(t, "closed orders", s.sweep(with, false), 1)
	want(t, "mark", s.mark(), -1)
	hints, err = with.MappingHints(t.Context())
	s.must(err)
	want(t, "hints on the index", slices.ContainsFunc(hints, mentionsIndex), false)
}

func mentionsIndex(hint string) bool { return strings.Contains(hint, "CREATE INDEX") }
