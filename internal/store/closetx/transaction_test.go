package closetx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/schema"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Of the transactions of many orders, one at a time moves stock. The others wait, but not for one that hangs.
func TestClose_OneLargeTransactionMovesStockAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewCloser(&schema.Checker{Handle: &db.Handle{Dialect: db.MySQLDialect}})
		wait := func(c *closing, orders int) time.Duration {
			c.S, c.Tx, c.all = s, &gorm.DB{Statement: &gorm.Statement{Context: t.Context()}}, make([]string, orders)
			began := time.Now()
			expect.That(t, c.awaitStockTurn() == nil, "it does not move stock")
			return time.Since(began)
		}
		var first, second, hung, small, crowded closing
		expect.That(t, wait(&first, manyOrders) == 0, "the first one waits")
		time.AfterFunc(20*time.Millisecond, first.endStockTurn)
		took := wait(&second, manyOrders)
		expect.That(t, took == 20*time.Millisecond+stockPause, "the second one waits %v", took)
		took = wait(&hung, manyOrders)
		expect.That(t, took == stockWait && !hung.stockTurn, "behind one that hangs another waits %v", took)
		hung.endStockTurn()
		expect.That(t, wait(&small, manyOrders-1) == 0, "a small one waits")
		crowded.stockFirst = true
		expect.That(t, wait(&crowded, manyOrders) == 0, "one that has its stock waits")
		second.endStockTurn()
		time.Sleep(stockPause)
		expect.That(t, wait(&hung, manyOrders) == 0, "after a turn another one waits")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		c := closing{Rows: Rows{S: s, Tx: &gorm.DB{Statement: &gorm.Statement{Context: ended}}}, all: make([]string, manyOrders)}
		expect.That(t, c.awaitStockTurn() != nil, "a call that has ended moves stock")
	})
}

func TestVerdict_BoundaryIsInclusive(t *testing.T) {
	due := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, c := range []struct {
		status db.State
		now    time.Time
		want   orderclose.Verdict
	}{
		{db.StateOpen, due.Add(-time.Millisecond), orderclose.NotDue},
		{db.StateOpen, due, orderclose.Closed},
		{db.StateOpen, due.Add(time.Millisecond), orderclose.Closed},
		{db.StatePaid, due, orderclose.AlreadyPaid},
		{db.StatePaid, due.Add(-time.Hour), orderclose.AlreadyPaid},
		{db.StateClosed, due, orderclose.AlreadyClosed},
	} {
		got := verdict(c.status, due, due, c.now)
		expect.That(t, got == c.want, "status %d, %v after due: %v, want %v", c.status, c.now.Sub(due), got, c.want)
	}
	for _, st := range []db.State{db.StateOpen, db.StateExcluded} {
		got := verdict(st, due.Add(-time.Second), due, due)
		expect.That(t, got == orderclose.Excluded, "status %d, due before the first due time: %v, want it excluded", st, got)
	}
	expect.Equal(t, verdict(db.StateOpen, time.Time{}, time.Time{}, due), orderclose.Failed, "an order without a due time")
}

// cutting is a server that sends one of two lines, and says how many lines there are, or does not.
type cutting struct {
	driver.Conn // nil: nobody uses the rest of it
	says        bool
	sent        int
}

func (c *cutting) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *cutting) Driver() driver.Driver                        { return nil }
func (c *cutting) Close() error                                 { return nil }

func (c *cutting) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.sent = 0
	return c, nil
}

func (c *cutting) Columns() []string { return make([]string, 5) }

func (c *cutting) Next(row []driver.Value) error {
	c.sent++
	switch {
	case c.sent == 1:
		copy(row, []driver.Value{"a", "ink", "1", nil, int64(0)})
	case c.sent == 2 && c.says:
		copy(row, []driver.Value{nil, nil, nil, nil, int64(2)})
	default:
		return io.EOF
	}
	return nil
}

func TestReadLines_ACutAnswerIsAnError(t *testing.T) {
	for _, says := range []bool{true, false} {
		on := must.Get(gorm.Open(gormmysql.New(gormmysql.Config{Conn: sql.OpenDB(&cutting{says: says}), SkipInitializeWithVersion: true}), db.GormConfig()))(t)
		h := &db.Handle{Gorm: on, Dialect: db.MySQLDialect}
		must.Do(t, h.MapOrders(nil, "", orderclose.Delays{}))
		s := NewCloser(&schema.Checker{Handle: h})
		_, _, err := s.ReadLines(s.Gorm, "SELECT ?, ?", []string{"a"})
		must.That(t, errors.Is(err, orderclose.ErrNoOrderAtFault) && strings.Contains(err.Error(), "and sent 1"), "an answer without a line: %v", err)
		must.Do(t, s.Close())
	}
}
