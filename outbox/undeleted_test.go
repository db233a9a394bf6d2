package outbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Each worker publishes a row once, however long the database accepts no writes, also
// to the dead-letter topic.
func TestDispatcher_PublishesRowsOnceIfTheDatabaseAcceptsNoWrites(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(n, " rows"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l, m := newStore(orders(n)...), newLog(), newCounts()
				s.setFull(true)
				defer run(t, s, l, m, 10)()
				time.Sleep(10 * time.Minute)
				expect.That(t, len(keys(l, "events")) <= DefaultInFlight*n && len(s.left()) == n,
					"%d records of %d rows, %d rows left", len(keys(l, "events")), n, len(s.left()))
				s.setFull(false)
				time.Sleep(5 * time.Second)
				if got := len(keys(l, "events")); got > DefaultInFlight*n || len(s.left()) != 0 || m.dispatched() != n {
					t.Errorf("%d records of %d rows, %d rows left, %d counted", got, n, len(s.left()), m.dispatched())
				}
			})
		})
	}
}

// A table that was emptied may assign the same ids again while a worker remembers
// rows.
func TestDispatcher_AReusedIdIsAnotherRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := newStore("former"), newLog(), newCounts()
		s.setFull(true)
		defer run(t, s, l, m, 10)()
		time.Sleep(time.Minute)
		s.mu.Lock()
		row := s.rows[1]
		row.OrderID = "new"
		s.rows[1], s.full = row, false
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		expect.That(t, fmt.Sprint(keys(l, "events")) == "[former new]" && len(s.left()) == 0, "published %v, left %v", fmt.Sprint(keys(l, "events")), s.left())
	})
}
