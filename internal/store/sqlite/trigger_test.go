package sqlite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// A trigger of the shop is created while a closer runs. Whatever statement fires it, it changes no outcome in silence.
func TestCloseOrders_SeesWhatALaterTriggerDid(t *testing.T) {
	for _, c := range []struct{ name, ddl, says string }{
		{"the status", "AFTER UPDATE ON orders WHEN NEW.status = 2 BEGIN UPDATE orders SET status = 0 WHERE id = NEW.id; END", "do not have the status 2"},
		{"the status, by an event", "AFTER INSERT ON outbox_events BEGIN UPDATE orders SET status = 0 WHERE id = NEW.order_id; END", "do not have the status 2"},
		{"the stock", "AFTER UPDATE ON stock WHEN NEW.available > 8 BEGIN UPDATE stock SET available = 8 WHERE sku_id = NEW.sku_id; END",
			"the stock in table stock of 1 SKUs is 8, with 1 reserved, after it came back, and should be 9 and 1"},
		{"nothing", "AFTER UPDATE ON stock BEGIN SELECT 1; END", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, sqlite.Memory)
			must.Do(t, s.Migrate(t.Context()))
			orders := scenario.OrdersOf(s)
			must.Do(t, orders.PutStock(t.Context(), "ink", 10))
			now := must.Get(s.Now(t.Context()))(t)
			for _, id := range []string{"a", "b", "c"} {
				o := orderclose.Order{ID: id, CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}
				must.Do(t, orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: "ink", Quantity: 1}}))
			}
			closeIt := func(id string) error {
				_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: id}})
				return err
			}
			must.Do(t, closeIt("a"))
			must.Get(s.DB().Exec("CREATE TRIGGER later " + c.ddl))(t)
			if err := closeIt("b"); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("a close: %v, want %q", err, c.says)
			}
			must.Get(s.DB().Exec("DROP TRIGGER later"))(t)
			for _, id := range []string{"b", "c"} {
				must.Do(t, closeIt(id))
			}
			var got string
			must.Do(t, s.DB().QueryRow("SELECT available || ' ' || reserved FROM stock").Scan(&got))
			must.That(t, got == "10 0", "at the end the stock is %s", got)
		})
	}
}
