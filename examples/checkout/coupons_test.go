package checkout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func withCoupon(id, coupon string) string {
	return fmt.Sprintf(`{"id":%q,"customer":"ann","category":"virtual","coupon":%q,"items":[{"sku":"ink","quantity":1}]}`, id, coupon)
}

func (r *rig) coupons() []string {
	r.t.Helper()
	return r.rows("SELECT coupon, COALESCE(order_id, '-'), returned FROM checkout_coupons ORDER BY coupon")
}

func TestCoupons_AreGivenBackOnceInTheClose(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		for _, id := range []string{"c1", "c2", "c3"} {
			r.want(200, "PUT", "/coupons/"+id, `{"customer":"ann"}`)
		}
		var o checkout.Order
		r.want(201, "POST", "/orders", withCoupon("a", "c1")).into(t, &o)
		r.want(201, "POST", "/orders", withCoupon("paid", "c2"))
		r.want(201, "POST", "/orders", withCoupon("cancelled", "c3"))
		problem(t, r.want(409, "POST", "/orders", withCoupon("b", "c1")))
		problem(t, r.want(409, "POST", "/orders", withCoupon("b", "none")))
		r.want(404, "GET", "/orders/b", "")
		r.pay("paid")
		r.do("cancelled", checkout.Cancel)
		r.same("before the close", r.coupons(), []string{"c1 a 0", "c2 paid 0", "c3 - 1"})

		time.Sleep(time.Until(o.DueAt))
		r.same("read past due", r.get("a").Status, checkout.Closed)
		r.same("after the close", r.coupons(), []string{"c1 - 1", "c2 paid 0", "c3 - 1"})

		// The coupon is used again. A repeated close of the first order takes nothing back.
		r.want(201, "POST", "/orders", withCoupon("again", "c1"))
		for _, path := range []orderclose.Path{orderclose.PathPipeline, orderclose.PathSweep, orderclose.PathTouch} {
			_, err := r.clients.Store.CloseOrders(r.t.Context(), path, []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "paid"}, {OrderID: "cancelled"}})
			r.must(err)
		}
		r.same("after repeated closes", r.coupons(), []string{"c1 again 1", "c2 paid 0", "c3 - 1"})
	})
}

func TestCoupons_AreRefusedIfNoCloseGivesThemBack(t *testing.T) {
	inBubble(t, func(o *checkout.Options) { o.Coupons = false }, func(r *rig) {
		r.want(200, "PUT", "/coupons/c1", `{"customer":"ann"}`)
		problem(t, r.want(409, "POST", "/orders", withCoupon("a", "c1")))
		problem(t, r.want(400, "PUT", "/coupons/c1", `{}`))
		r.want(404, "GET", "/coupons/none", "")
	})
}

func TestTopicsFile_GivesCouponsBack(t *testing.T) {
	cfg := must.Get(config.Load("topics.yaml"))(t)
	expect.That(t, cfg.Orders != nil && slices.Equal(cfg.Orders.OnClose, []string{checkout.ReturnCoupons}), "on_close is not ReturnCoupons: %+v", cfg.Orders)
}
