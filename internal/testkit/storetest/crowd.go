package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

var crowdPromises = []promise[shop]{
	{name: "ACrowdOnTheSameOrders", test: crowdOnTheSameOrders, tags: Dialect},
	{name: "PaymentsBesideClosesAreNeverLost", test: paymentsBesideCloses, tags: Dialect},
	{name: "ACrowdOnARowBehindATriggerKeepsNoOrderOpen", test: crowdBehindTriggers, tags: Dialect},
}

// The size of the crowd. Each batch has rows of all hot SKUs, in its own order.
const (
	crowdSKUs    = 4
	crowdSweeps  = 2
	crowdPayers  = 6
	crowdTouches = 3
)

// crowdOrders returns how many orders there are.
func crowdOrders() int {
	if ring.All() {
		return 3000
	}
	return 500
}

// crowdBatches are the batch sizes of the closers. Most are small, so that the others get a share of the orders.
var crowdBatches = []int{1, 7, 20, 60}

// crowdSeed returns the seed of this run: CROWD_SEED, to repeat a run, or a random seed.
func crowdSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("CROWD_SEED")
	if text == "" {
		return rand.Uint64N(1_000_000)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	must.That(t, err == nil, "CROWD_SEED: %v", err)
	return seed
}

// crowdOnTheSameOrders runs closers, sweeps, payers, a canceller, readers who close at once and a checkout on the same overdue orders and the same few
// SKUs. The winner is open; the seed determines what each goroutine tries, not the race.
func crowdOnTheSameOrders(t *testing.T, s *shop) {
	c := newCrowd(t, s)
	var wg sync.WaitGroup
	for n := range crowdBatches {
		wg.Go(func() { c.closer(s.Store, c.random(1, n), orderclose.PathPipeline, crowdBatches[n]) })
	}
	for n := range crowdTouches {
		wg.Go(func() { c.closer(s.Store, c.random(3, n), orderclose.PathTouch, 1) })
	}
	for range crowdSweeps {
		wg.Go(c.sweep)
	}
	for n := range crowdPayers {
		wg.Go(func() { c.end(c.random(4, n), c.pay, shopdb.AnswerPaid, len(c.ids)/5) })
	}
	wg.Go(func() { c.end(c.random(5, 0), s.Cancel, shopdb.AnswerCancelled, len(c.ids)/10) })
	wg.Go(func() { c.checkout(c.random(6, 0)) })
	wg.Wait()
	c.checkPromises()
}

// newCrowd returns a crowd, and creates its orders and their stock.
func newCrowd(t *testing.T, s *shop) *crowd {
	c := &crowd{shop: s, seed: crowdSeed(t), told: map[string][]string{}, skus: names("hot%d", crowdSKUs), ids: names("o%04d", crowdOrders())}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("CROWD_SEED=%d asks for the same again", c.seed)
		}
	})
	s.migrated()
	c.stock()
	c.create()
	return c
}

// crowd is the state that the goroutines share, and the answers that they got.
type crowd struct {
	*shop
	seed      uint64
	skus, ids []string

	mu        sync.Mutex
	told      map[string][]string // by order id: the final states that calls returned
	contended int
	errs      []error
	doubt     map[string]bool // if sessions are killed, so that a call may fail at any time: orders of calls that failed
	committed []string        // payments, as order/payment
}

// crowdStock is the stock of each SKU: enough for all orders.
const crowdStock = 1_000_000

// pay pays an order by its only payment.
func (c *crowd) pay(ctx context.Context, id string) (shopdb.Answer, error) {
	return c.Pay(ctx, id, "p-"+id)
}

func (c *crowd) random(kind, n int) *rand.Rand {
	return rand.New(rand.NewPCG(c.seed, uint64(kind*100+n)))
}

func (c *crowd) stock() {
	for _, sku := range c.skus {
		c.must(c.PutStock(c.Context(), sku, crowdStock))
	}
}

// create inserts the orders. Each has lines of two SKUs; some have two lines of one SKU.
func (c *crowd) create() {
	random, now := c.random(0, 0), c.now()
	orders := make([]orderclose.Order, len(c.ids))
	reserved := map[string]int64{}
	query, args := "", []any{}
	flush := func() {
		if len(args) > 0 {
			c.exec("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES "+strings.TrimSuffix(query, ", "), args...)
		}
		query, args = "", nil
	}
	for i, id := range c.ids {
		due := now.Add(-time.Minute - time.Duration(random.IntN(600_000))*time.Millisecond)
		orders[i] = orderclose.Order{ID: id, Category: "book", CreatedAt: due.Add(-time.Hour), Due: due}
		for line := range 3 {
			sku, quantity := c.skus[random.IntN(crowdSKUs)], int64(1+random.IntN(3))
			query += "(?, ?, ?, ?), "
			args = append(args, id, line, sku, quantity)
			reserved[sku] += quantity
		}
		if i%100 == 99 {
			flush()
		}
	}
	flush()
	c.bulk(orders)
	for sku, n := range reserved {
		c.exec("UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ?", n, n, sku)
	}
}

// note records the answer of a call, or its error. A row that was locked for too long is no
// failure, nor is a server that does not answer in time on a busy machine: the caller retries. A deadlock must not reach the caller.
func (c *crowd) note(id, what string, err error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.told[id] = append(c.told[id], what)
		return false
	}
	my, ok := errors.AsType[*mysql.MySQLError](err)
	slow := errors.Is(err, orderclose.ErrUnavailable) && (c.doubt != nil || errors.Is(err, context.DeadlineExceeded))
	if slow || errors.Is(err, orderclose.ErrContended) && (!ok || my.Number != 1213) {
		c.contended++
		return true
	}
	c.errs = append(c.errs, err)
	return false
}

// closer closes all orders, in its own order and batches, until each order has ended.
func (c *crowd) closer(s *store.Store, random *rand.Rand, path orderclose.Path, batch int) {
	left := c.shuffled(random)
	if path == orderclose.PathTouch {
		left = left[:len(c.ids)/10]
	}
	for len(left) > 0 {
		part := left[:min(batch, len(left))]
		left = left[len(part):]
		outcomes, err := s.CloseOrders(c.Context(), path, requests(part...))
		if err != nil {
			if !c.note("", "", err) {
				return
			}
			left = append(left, part...)
			c.inDoubt(part)
		}
		for _, o := range outcomes {
			switch o.Verdict {
			case orderclose.Closed:
				c.note(o.OrderID, "closed by "+string(path), nil)
			case orderclose.Contended: // somebody else has it now
				left = append(left, o.OrderID)
			case orderclose.AlreadyClosed: // perhaps by this call, whose first transaction had no answer
				c.inDoubt([]string{o.OrderID})
			}
		}
	}
}

// inDoubt notes orders that a call may have closed although it failed.
func (c *crowd) inDoubt(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.doubt != nil {
			c.doubt[id] = true
		}
	}
}

// sweep makes a pass by hand, beside other passes.
func (c *crowd) sweep() {
	sweeper := must.Get(compensator.New(compensator.Options{Store: swept{c}, Alone: true, PageSize: 20}))(c)
	r, err := sweeper.Sweep(c.Context(), false)
	if err != nil {
		c.note("", "", err)
	}
	for _, f := range r.Failures {
		if !strings.Contains(f.Error, orderclose.ErrContended.Error()) {
			c.note("", "", errors.New(f.Error))
		}
	}
}

// swept is the store of the sweeps: it records the answers.
type swept struct{ *crowd }

func (s swept) CloseOrders(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := s.Store.CloseOrders(ctx, path, reqs)
	for _, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			s.note(o.OrderID, "closed by "+string(path), nil)
		}
	}
	return outcomes, err
}

// end pays or cancels some of the orders.
func (c *crowd) end(random *rand.Rand, how func(context.Context, string) (shopdb.Answer, error), won shopdb.Answer, n int) {
	left := c.shuffled(random)[:n]
	for len(left) > 0 {
		id := left[0]
		left = left[1:]
		switch a, err := how(c.Context(), id); {
		case err != nil:
			if c.note(id, "", err) {
				left = append(left, id)
			}
		case a == won:
			c.note(id, string(won), nil)
		}
	}
}

// checkout creates orders of the same SKUs that stay unpaid.
func (c *crowd) checkout(random *rand.Rand) {
	due := c.now().Add(time.Hour)
	for n := 0; n < 200; {
		o := orderclose.Order{ID: fmt.Sprintf("new%03d", n), CreatedAt: due.Add(-time.Hour), Due: due}
		items := []shopdb.Item{{SKU: c.skus[random.IntN(crowdSKUs)], Quantity: 1}, {SKU: c.skus[random.IntN(crowdSKUs)], Quantity: 2}}
		if err := c.CreateOrder(c.Context(), o, items); err == nil || !c.note("", "", err) {
			n++
		}
	}
}

// triggersOfACrowd are when triggers fire that write a row which sessions of the shop keep busy.
var triggersOfACrowd = map[store.DialectName][]string{
	store.MySQL: {"AFTER UPDATE ON orders", "AFTER UPDATE ON stock", "AFTER INSERT ON receipts"},
	store.Postgres: {"AFTER UPDATE ON orders", "AFTER UPDATE ON stock", "AFTER INSERT ON receipts",
		"AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED", "AFTER UPDATE ON stock DEFERRABLE INITIALLY DEFERRED"},
}

// crowdBehindTriggers closes orders whose close has to lock a row that eight sessions lock all the time, each for 15 ms. The close waits in the
// same queue as they do, so a few calls close the orders while the crowd goes on.
func crowdBehindTriggers(t *testing.T, s *shop) {
	s.needs(rowLocks)
	s.migrated("ink")
	s.exec("CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL)")
	s.exec("INSERT INTO hot VALUES (1, 0)")
	pause := map[store.DialectName]string{store.MySQL: "DO SLEEP(0.015)", store.Postgres: "SELECT pg_sleep(0.015)"}[s.Dialect()]
	for i, when := range triggersOfACrowd[s.Dialect()] {
		ids := names(fmt.Sprintf("o%d.%%02d", i), 20)
		for _, id := range ids {
			s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
		}
		drop := s.trigger(when, "UPDATE hot SET n = n + 1 WHERE id = 1")
		var crowd sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		pool := s.shopsPool()
		for range 8 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					tx, err := pool.BeginTx(t.Context(), nil)
					for _, query := range []string{"UPDATE hot SET n = n + 1 WHERE id = 1", pause} {
						if err == nil {
							_, err = tx.ExecContext(t.Context(), query)
						}
					}
					if err = errors.Join(err, tx.Commit()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		calls := 0
		for open := -1; open != 0 && calls < 10; calls++ {
			_, err := s.CloseOrders(t.Context(), orderclose.PathSweep, requests(ids...))
			expect.That(t, err == nil || errors.Is(err, orderclose.ErrContended), "with a trigger %s: %v", when, err)
			open = s.count("SELECT COUNT(*) FROM orders WHERE status = 0 AND id LIKE ?", ids[0][:3]+"%")
		}
		end()
		crowd.Wait()
		expect.That(t, calls == 1, "a trigger %s: %d calls closed the orders beside the crowd, want one", when, calls)
		drop()
		s.close(ids...)
	}
}

func (c *crowd) shuffled(random *rand.Rand) []string {
	ids := slices.Clone(c.ids)
	random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// checkPromises checks the database and all answers against the promises.
func (c *crowd) checkPromises() {
	c.Helper()
	for _, err := range c.errs {
		c.Errorf("a call failed: %v", err)
	}
	if c.contended > 0 {
		c.Logf("%d times a row was held for longer than a transaction waits, or the server did not answer in time", c.contended)
	}
	told := map[string]int{}
	var closed, ended []string
	statuses := map[string]string{"paid": "1 ", "closed": "2 ", "cancelled": "3 "}
	for id, whats := range c.told {
		expect.That(c, len(whats) == 1, "order %s: %d calls returned that they ended it: %q", id, len(whats), whats)
		what, path, _ := strings.Cut(whats[0], " by ")
		told[cmp.Or(path, what)]++
		ended = append(ended, statuses[what]+id)
		if what == "closed" {
			closed = append(closed, id+" "+path)
		}
	}
	c.Logf("seed %d: %v", c.seed, told)
	slices.Sort(closed)
	want(c, "orders that did not end", c.texts("SELECT id FROM orders WHERE status = 0 AND id LIKE 'o%'"), nil)
	slices.Sort(ended)
	want(c, "orders and their statuses", c.texts("SELECT CONCAT_WS(' ', status, id) FROM orders WHERE id LIKE 'o%' ORDER BY status, id"), ended)
	want(c, "receipts and their paths", c.texts("SELECT CONCAT_WS(' ', order_id, path) FROM receipts ORDER BY order_id"), closed)
	want(c, "receipts without a closed order, or early", c.texts("SELECT r.order_id FROM receipts r JOIN orders o ON o.id = r.order_id"+
		" WHERE o.status <> 2 OR r.closed_at < o.expire_at OR r.closed_at <> o.closed_at OR o.paid_at IS NOT NULL OR o.version <> 2"), nil)
	want(c, "events of closes", c.texts("SELECT order_id FROM outbox_events WHERE kind = 'order.closed' ORDER BY order_id"),
		c.texts("SELECT order_id FROM receipts ORDER BY order_id"))
	want(c, "orders with a late payment", c.texts("SELECT order_id FROM outbox_events WHERE kind = 'order.paid_late' ORDER BY order_id"),
		c.texts("SELECT order_id FROM late_payments ORDER BY order_id"))
	want(c, "late payments of paid orders", c.texts("SELECT l.order_id FROM late_payments l JOIN orders o ON o.id = l.order_id"+
		" WHERE o.status NOT IN (2, 3) AND l.payment_id IN ('', o.payment_id)"), nil)
	// The expected ledger: rows of closed and cancelled orders, with their kind, summed by SKU.
	want(c, "the ledger", c.ledger(),
		c.texts("SELECT CONCAT_WS(' ', i.order_id, i.sku_id, CASE o.status WHEN 2 THEN 'close' ELSE 'cancel' END, SUM(i.quantity)) FROM order_items i"+
			" JOIN orders o ON o.id = i.order_id WHERE o.status IN (2, 3) GROUP BY i.order_id, i.sku_id, o.status ORDER BY i.order_id, i.sku_id"))
	want(c, "the stock", c.sums("SELECT sku_id, available + reserved, reserved FROM stock"),
		c.sums("SELECT s.sku_id, "+strconv.Itoa(crowdStock)+", COALESCE(SUM(i.quantity), 0) FROM stock s"+
			" LEFT JOIN (order_items i JOIN orders o ON o.id = i.order_id AND o.status IN (0, 1)) ON i.sku_id = s.sku_id GROUP BY s.sku_id"))
}

// sums reads a SKU and two numbers from each row.
func (c *crowd) sums(query string) map[string][2]int64 {
	c.Helper()
	rows := must.Get(c.DB().QueryContext(c.Context(), query))(c)
	defer func() { _ = rows.Close() }()
	all := map[string][2]int64{}
	for rows.Next() {
		var sku string
		var n [2]int64
		c.must(rows.Scan(&sku, &n[0], &n[1]))
		all[sku] = n
	}
	c.must(rows.Err())
	want(c, "SKUs", slices.Sorted(maps.Keys(all)), c.skus)
	return all
}
