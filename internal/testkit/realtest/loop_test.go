package realtest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// withinTheHour spreads n due times over the last hour.
func withinTheHour(n int) func(i int) time.Time {
	end := time.Now().Add(-10 * time.Second)
	return func(i int) time.Time { return end.Add(-time.Duration(i) * time.Hour / time.Duration(n)) }
}

func one(sku string) func(int) string { return func(int) string { return sku } }

// slowProvider has no answer for orders whose id begins with pending, each after some milliseconds.
type slowProvider struct{ asked atomic.Int64 }

func (p *slowProvider) Ask(ctx context.Context, ids []string) ([]payment.Answer, error) {
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		answers[i] = payment.Unpaid
		if strings.HasPrefix(id, "pending-") {
			p.asked.Add(1)
			answers[i] = payment.Unknown
			scenario.Pause(ctx, 5*time.Millisecond)
		}
	}
	return answers, ctx.Err()
}

// besideThem are what stands beside orders whose records are lost. After it has run, end is called, which may be nil.
var besideThem = map[string]func(r *rig) (end func()){
	"10,000 without a stock row": func(r *rig) func() {
		r.insert("stuck", "", 10_000, withinTheHour(10_000), one("deleted"))
		return nil
	},
	"5,000 pending at the provider": func(r *rig) func() {
		r.env = append(r.env, config.EnvPaymentSecret+"="+serviceSecret)
		r.configure(fmt.Sprintf("closer: {payment: {url: %q, recheck: []}}\n", r.paymentService(&slowProvider{}).URL))
		r.insert("pending", "", 5000, withinTheHour(5000), one(scenario.SKU(0)))
		return nil
	},
	"5,000 of a paused category": func(r *rig) func() {
		r.insert("paused", "held", 5000, withinTheHour(5000), one(scenario.SKU(0)))
		r.exec("UPDATE stock SET available = available - 5000, reserved = reserved + 5000 WHERE sku_id = ?", scenario.SKU(0))
		r.must("pause", "--category", "held", "--for", "1h", "--reason", "a test")
		return func() {
			expect.Equal(r.t, r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'paused-%'"), 0, "orders closed during their pause")
			r.must("resume", "--category", "held")
			ended := time.Now()
			r.until("the paused orders are closed", func() bool {
				return r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'paused-%'") == 5000
			})
			r.t.Logf("5,000 orders of a pause that ended were closed after %v; aim: 13 s", time.Since(ended))
		}
	},
	"a locked row of stock": func(r *rig) func() {
		r.insert("locked", "", 500, withinTheHour(500), one(scenario.SKU(1)))
		r.exec("UPDATE stock SET available = available - 500, reserved = reserved + 500 WHERE sku_id = ?", scenario.SKU(1))
		tx := must.Get(r.store.DB().BeginTx(r.t.Context(), nil))(r.t)
		must.Get(tx.ExecContext(r.t.Context(), "UPDATE stock SET available = available WHERE sku_id = ?", scenario.SKU(1)))(r.t)
		return func() {
			must.Do(r.t, tx.Rollback())
			r.until("the orders of the row are closed", func() bool {
				return r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'locked-%'") == 500
			})
		}
	},
	"20,000 that are lost too": func(r *rig) func() {
		r.insert("lost", "", 20_000, withinTheHour(20_000), func(i int) string { return scenario.SKU(2 + i%10) })
		r.exec("UPDATE stock SET available = available - 2000, reserved = reserved + 2000")
		return nil
	},
}

// Orders whose records are lost become due one after another, beside others that cannot be closed. The process that holds the lock is
// killed in the middle. How late they are is logged but not checked, because it depends on the machine.
func TestReal_LostOrdersCloseInHalfAMinuteBesideOthers(t *testing.T) {
	eachDatabase(t, lostBesideOthers)
}

func lostBesideOthers(t *testing.T, s config.Servers) {
	for name, prepare := range besideThem {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			end := prepare(r)
			r.start("compensator-1")
			r.lockKey() // it works
			r.start("compensator-2")
			const lost = 200 // five a second
			create := func(phase string) {
				for i := range lost {
					o := r.shop.Producer.Order(fmt.Sprintf("%s-%d", phase, i), time.Now(), "flash-sale")
					must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(12 + i%8), Quantity: 1}}))
					scenario.Pause(t.Context(), 200*time.Millisecond)
				}
			}
			create("first")
			r.signal("compensator-1", syscall.SIGKILL)
			create("then")
			r.until("the lost orders are closed", func() bool {
				return r.count("SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'first-%' OR order_id LIKE 'then-%'") == 2*lost
			})
			for phase, most := range map[string]int{"first": 30, "then": 48} {
				late := r.count("SELECT MAX(lateness_ms) FROM receipts WHERE order_id LIKE '" + phase + "-%'")
				t.Logf("%s, %s: the latest of the lost orders closed after %d ms; aim: %d s", name, phase, late, most)
			}
			if end != nil {
				end()
			}
		})
	}
}
