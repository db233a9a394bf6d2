package storetest

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/shoplocks"
)

// paymentsBesideCloses runs closers of two processes beside payments, answers of the provider, and changes of lines, while sessions are killed.
// Each payment that was committed has paid its order or is late, and one that was undone is nowhere.
func paymentsBesideCloses(t *testing.T, s *shop) {
	s.needs(rowLocks)
	c := newCrowd(t, s)
	c.doubt = map[string]bool{}
	var wg sync.WaitGroup
	another := s.another()
	for n, batch := range crowdBatches {
		wg.Go(func() {
			c.closer([]*store.Store{s.Store, another}[n%2], c.random(1, n), orderclose.PathPipeline, batch)
		})
	}
	for n := range crowdPayers {
		wg.Go(func() { c.callbacks(c.random(4, n)) })
	}
	wg.Go(func() { c.provider(another, c.random(5, 0)) })
	for n := range 2 {
		wg.Go(func() { c.changeLines(c.random(6, n)) })
	}
	var killer sync.WaitGroup
	killed, random := 0, c.random(7, 0)
	killing, end := context.WithCancel(t.Context())
	killer.Go(func() { scenario.Every(killing, 40*time.Millisecond, func() { killed += c.kill(random) }) })
	wg.Wait()
	end()
	killer.Wait()
	for _, row := range s.texts("SELECT CONCAT_WS(' ', status, id) FROM orders WHERE status IN (1, 2) AND id LIKE 'o%'") {
		switch status, id, _ := strings.Cut(row, " "); {
		case status == "1":
			c.note(id, "paid", nil)
		case c.doubt[id] && len(c.told[id]) == 0: // the answer to the commit was lost
			c.note(id, "closed by pipeline", nil)
		}
	}
	c.checkPromises()
	late := s.texts("SELECT CONCAT_WS('/', order_id, payment_id) FROM late_payments")
	known := append(s.texts("SELECT CONCAT_WS('/', id, payment_id) FROM orders WHERE payment_id IS NOT NULL"), late...)
	t.Logf("%d payments, %d of them late, %d sessions killed", len(c.committed), len(late), killed)
	want(t, "payments that are lost", slices.DeleteFunc(c.committed, func(p string) bool { return slices.Contains(known, p) }), []string{})
	want(t, "payments that were undone", slices.DeleteFunc(known, func(p string) bool { return p[len(p)-1] != 'u' }), []string{})
	want(t, "closed orders with a payment", s.count("SELECT COUNT(*) FROM orders WHERE status = 2 AND payment_id IS NOT NULL"), 0)
}

// callbacks records payments of a third of the orders, each until its transaction is committed.
func (c *crowd) callbacks(random *rand.Rand) {
	for _, id := range c.shuffled(random)[:len(c.ids)/3] {
		err := c.callback(random, id)
		for ; shoplocks.IsConflict(err) || errors.Is(store.Classify(err), orderclose.ErrUnavailable); err = c.callback(random, id) {
			scenario.Pause(c.Context(), time.Millisecond)
		}
		if err != nil {
			c.note("", "", err)
		}
	}
}

// callback records a payment or two in a transaction, some of them twice. A part of it, or all, may be undone.
func (c *crowd) callback(random *rand.Rand, id string) error {
	level := shoplocks.Isolations[random.IntN(len(shoplocks.Isolations))]
	if c.Dialect() == store.Postgres {
		level = sql.LevelReadCommitted // RecordPayment takes no other
	}
	tx, err := c.DB().BeginTx(c.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	pay := func(payment string) error {
		_, err := callback.RecordPayment(c.Context(), c.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: id, PaymentID: payment, Amount: 5, Currency: "EUR"})
		return err
	}
	do := func(query string) error {
		_, err := tx.ExecContext(c.Context(), query)
		return err
	}
	payments := []string{"1", "2", "1"}[:1+2*random.IntN(2)]
	if random.IntN(4) == 0 {
		err = errors.Join(do("SAVEPOINT a"), pay("u"), do("ROLLBACK TO SAVEPOINT a"))
	}
	for _, payment := range payments {
		if err == nil {
			err = pay(payment)
		}
	}
	if err != nil || random.IntN(8) == 0 {
		return err
	}
	if err = tx.Commit(); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, payment := range payments {
			c.committed = append(c.committed, id+"/"+payment)
		}
	}
	return err
}

// provider says of some orders that they are paid, before their close or after it.
func (c *crowd) provider(another *store.Store, random *rand.Rand) {
	for n, id := range c.shuffled(random)[:len(c.ids)/5] {
		var err error
		if n%3 == 0 {
			_, err = c.PayOrders(c.Context(), requests(id))
		} else {
			_, err = another.RecordLate(c.Context(), []store.LatePayment{{OrderID: id, Source: store.SourceRecheck}})
		}
		if err != nil {
			c.note("", "", err)
		}
	}
}

// changeLines adds to a line of open orders, or removes it. What loses a conflict or its session is not tried again.
func (c *crowd) changeLines(random *rand.Rand) {
	for _, id := range c.shuffled(random)[:len(c.ids)/3] {
		_ = c.Checkout(c.Context(), func(t *shopdb.Tx) error {
			var sku string
			var quantity int64
			row := t.SQL().QueryRowContext(c.Context(), "SELECT i.sku_id, i.quantity FROM orders o JOIN order_items i ON i.order_id = o.id"+
				" WHERE o.id = ? AND o.status = 0 AND i.line_no = 0 FOR UPDATE", id)
			if err := row.Scan(&sku, &quantity); err != nil {
				return err
			}
			change, more := "UPDATE order_items SET quantity = quantity + 1 WHERE order_id = ? AND line_no = 0", int64(1)
			if random.IntN(2) == 0 {
				change, more = "DELETE FROM order_items WHERE order_id = ? AND line_no = 0", -quantity
			}
			_, err := t.SQL().ExecContext(c.Context(), change, id)
			if err == nil {
				_, err = t.SQL().ExecContext(c.Context(), "UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ?", more, more, sku)
			}
			return err
		})
	}
}

// kill kills a session that executes a statement, at times a commit, and returns how many it has killed.
func (c *crowd) kill(random *rand.Rand) (n int) {
	commits := random.IntN(2) == 0
	if c.Dialect() == store.Postgres {
		where := map[bool]string{true: " AND query ILIKE 'commit%'", false: ""}[commits]
		_ = c.DB().QueryRowContext(c.Context(), "SELECT COUNT(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()"+
			" AND pid <> pg_backend_pid() AND state <> 'idle'"+where+" ORDER BY random() LIMIT 1) AS x").Scan(&n)
		return n
	}
	order := map[bool]string{true: "(INFO LIKE 'COMMIT%') DESC, RAND()", false: "RAND()"}[commits]
	var id int64
	err := c.DB().QueryRowContext(c.Context(), "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"+
		" AND COMMAND <> 'Sleep' ORDER BY "+order+" LIMIT 1").Scan(&id)
	if err == nil {
		if _, err = c.DB().ExecContext(c.Context(), "KILL ?", id); err == nil {
			n = 1
		}
	}
	return n
}
