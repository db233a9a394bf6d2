package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// Of 500 orders a fifth lack a row of stock, by one cause or by five. They cost one look at the rows and one further transaction.
func TestCloseOrders_RefusedOrdersCostOneFurtherTransaction(t *testing.T) {
	faults := testkit.NewFaults(1)
	faults.Set(1, testkit.Fault{Name: "statement", At: []testkit.Point{testkit.Statement}}, testkit.Fault{Name: "begin", At: []testkit.Point{testkit.Begin}})
	statements := func(bad, causes int) (all, begun int) {
		s := opened(t, sqlite.Memory, sqlite.Options{Through: faults.Wrap})
		must.Do(t, s.Migrate(t.Context()))
		shop := scenario.OrdersOf(s)
		must.Do(t, shop.PutStock(t.Context(), "ink", 1000))
		for i := range causes {
			must.Do(t, shop.PutStock(t.Context(), fmt.Sprint("gone", i), 1000))
		}
		var reqs []orderclose.CloseRequest
		now := must.Get(s.Now(t.Context()))(t)
		for i := range 500 {
			o := orderclose.Order{ID: fmt.Sprint("o", i), CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}
			sku := "ink"
			if i*bad/500 != (i+1)*bad/500 {
				sku = fmt.Sprint("gone", i%causes)
			}
			must.Do(t, shop.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: sku, Quantity: 1}}))
			reqs = append(reqs, orderclose.CloseRequest{OrderID: o.ID})
		}
		must.Get(s.DB().ExecContext(t.Context(), "DELETE FROM stock WHERE sku_id LIKE 'gone%'"))(t)
		before := faults.Struck()
		verdicts := map[orderclose.Verdict]int{}
		for _, o := range must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, reqs))(t) {
			verdicts[o.Verdict]++
		}
		expect.That(t, verdicts[orderclose.Closed] == 500-bad && verdicts[orderclose.Failed] == bad, "%d refused orders: %v", bad, verdicts)
		after := faults.Struck()
		return after["statement"] - before["statement"], after["begin"] - before["begin"]
	}
	clean, once := statements(0, 0)
	for _, causes := range []int{1, 5, 97} {
		all, begun := statements(100, causes)
		t.Logf("%d statements in place of %d", all, clean)
		expect.That(t, begun == once+1 && all <= 3*clean, "by %d causes: %d statements in %d transactions, in place of %d in %d", causes, all, begun, clean, once)
	}
}
