package checkout_test

import (
	"testing"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// The due time passes while the start of a payment is recorded. A closer may have looked before the commit, so the customer is not sent to the page.
func TestShop_TheDueTimeIsCheckedAgainAfterAPaymentIsRecorded(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("a")
		_, err := r.world.DB().Exec("CREATE TRIGGER passes AFTER INSERT ON checkout_payments BEGIN UPDATE orders SET expire_at = created_at; END")
		r.must(err)
		for range 2 { // the second request is a repeat
			p := problem(t, r.want(409, "POST", "/orders/a/payments", "", checkout.HeaderKey, "k"))
			expect.That(t, p.Order != nil && p.Order.Status == checkout.Closed, "%+v", p)
		}
		r.same("recorded payments", len(r.rows("SELECT * FROM checkout_payments")), 1)
		r.same("receipts", r.rows("SELECT order_id, path FROM receipts"), []string{"a touch"})
	})
}
