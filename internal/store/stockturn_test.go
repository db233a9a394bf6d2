package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Of the transactions of many orders, one at a time moves stock. The others wait, but not for one that hangs.
func TestClose_OneLargeTransactionMovesStockAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{stockTurn: newStockTurn(), dialect: mysqlDialect}
		wait := func(c *closing, orders int) time.Duration {
			c.s, c.tx, c.all = s, &gorm.DB{Statement: &gorm.Statement{Context: t.Context()}}, make([]string, orders)
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
		c := closing{s: s, tx: &gorm.DB{Statement: &gorm.Statement{Context: ended}}, all: make([]string, manyOrders)}
		expect.That(t, c.awaitStockTurn() != nil, "a call that has ended moves stock")
	})
}
