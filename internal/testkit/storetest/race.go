package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

var racePromises = []promise{
	{"ConcurrentClosersAndPayers", concurrentClosersAndPayers},
}

const (
	raceOrders  = 240
	raceClosers = 8
	racePayers  = 3
	raceSKUs    = 5 // few, so that all transactions need the same rows
)

// tally counts the answers that the goroutines got, by order id.
type tally struct {
	sync.Mutex
	closed, paid, cancelled map[string]int
	errs                    []error
}

func (y *tally) note(told map[string]int, id string, err error) {
	y.Lock()
	defer y.Unlock()
	if err != nil {
		y.errs = append(y.errs, err)
		return
	}
	told[id]++
}

// Closers with overlapping shuffled batches, payers, a canceller and a checkout work on the same
// orders and the same few SKUs. No call fails, each order ends in exactly one way, and exactly
// one call returned that way.
func concurrentClosersAndPayers(t *testing.T, s *shop) {
	skus := names("sku%d", raceSKUs)
	s.migrated(skus...)
	ids := names("o%03d", raceOrders)
	for i, id := range ids {
		s.order(id, -time.Minute, shopdb.Item{SKU: skus[i%raceSKUs], Quantity: 1}, shopdb.Item{SKU: skus[(i+2)%raceSKUs], Quantity: 2})
	}

	y := &tally{closed: map[string]int{}, paid: map[string]int{}, cancelled: map[string]int{}}
	var wg sync.WaitGroup
	for range raceClosers {
		wg.Go(func() { s.raceCloser(y, shuffled(ids)) })
	}
	for range racePayers {
		wg.Go(func() { s.racePayer(y, shuffled(ids)[:raceOrders/3]) })
	}
	wg.Go(func() { s.raceCanceller(y, shuffled(ids)[:raceOrders/6]) })
	wg.Go(func() { s.raceCheckout(y, skus) })
	wg.Wait()

	for _, err := range y.errs {
		t.Errorf("a call failed: %v", err)
	}
	s.checkRace(y)
}

func shuffled(ids []string) []string {
	ids = slices.Clone(ids)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func (s *shop) raceCloser(y *tally, ids []string) {
	for size := 1 + rand.IntN(60); len(ids) > 0; {
		part := ids[:min(size, len(ids))]
		ids = ids[len(part):]
		out, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(part...))
		if err != nil {
			y.note(nil, "", err)
		}
		for _, o := range out {
			switch o.Verdict {
			case orderclose.Closed:
				y.note(y.closed, o.OrderID, nil)
			case orderclose.Contended: // another closer, a payer or the canceller has it now
				ids = append(ids, o.OrderID)
			}
		}
	}
}

func (s *shop) racePayer(y *tally, ids []string) {
	for _, id := range ids {
		if a, err := s.Pay(s.Context(), id, "p-"+id); err != nil || a == shopdb.AnswerPaid {
			y.note(y.paid, id, err)
		}
	}
}

func (s *shop) raceCanceller(y *tally, ids []string) {
	for _, id := range ids {
		if a, err := s.Cancel(s.Context(), id); err != nil || a == shopdb.AnswerCancelled {
			y.note(y.cancelled, id, err)
		}
	}
}

// raceCheckout creates orders that stay unpaid: they are due later.
func (s *shop) raceCheckout(y *tally, skus []string) {
	for i := range 40 {
		o := orderclose.Order{ID: fmt.Sprintf("new%02d", i), CreatedAt: time.Now(), Due: time.Now().Add(time.Hour)}
		if err := s.CreateOrder(s.Context(), o, []shopdb.Item{{SKU: skus[(i+3)%raceSKUs], Quantity: 1}, {SKU: skus[i%raceSKUs], Quantity: 1}}); err != nil {
			y.note(nil, "", err)
		}
	}
}

func (s *shop) checkRace(y *tally) {
	for what, told := range map[string]map[string]int{"1": y.paid, "2": y.closed, "3": y.cancelled} {
		for id, n := range told {
			if n != 1 {
				s.Errorf("order %s: %d calls returned that they set status %s", id, n, what)
			}
		}
		want(s, "orders of status "+what,
			s.texts("SELECT id FROM orders WHERE status = ? ORDER BY id", what), slices.Sorted(maps.Keys(told)))
	}
	want(s, "orders left over", s.count("SELECT COUNT(*) FROM orders WHERE status = 0 AND id LIKE 'o%'"), 0)
	want(s, "receipts", s.texts("SELECT order_id FROM receipts ORDER BY order_id"), slices.Sorted(maps.Keys(y.closed)))
	want(s, "SKUs with a wrong sum", s.texts("SELECT sku_id FROM stock WHERE available + reserved <> 1000"), nil)
	want(s, "SKUs whose reserved quantity is not what open and paid orders hold", s.texts(
		"SELECT sku_id FROM stock s WHERE reserved <> (SELECT COALESCE(SUM(i.quantity), 0) FROM order_items i"+
			" JOIN orders o ON o.id = i.order_id WHERE i.sku_id = s.sku_id AND o.status IN (0, 1))"), nil)
	want(s, "ledger rows", s.count("SELECT COUNT(*) FROM stock_ledger"), 2*(len(y.closed)+len(y.cancelled)))
}
