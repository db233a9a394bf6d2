package propose

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestMeaningOf_WordsOfStatuses(t *testing.T) {
	for what, list := range map[meaning]string{
		unpaid:   "PAYMENT_NOT_RECEIVED PAY_WAIT unpaid wait_pay pending_payment AwaitingPayment TO_PAY wc-pending-payment 待付款 已确认/待支付 未支付 WAIT_BUYER_PAY not_paid",
		closed:   "cancelled CANCELED closed 已取消 交易关闭 无效订单 void abandoned 交易失败 unpaid_cancelled",
		timedOut: "expired timeout 超时关闭 系统取消 auto_cancelled payment_expired",
		paid:     "paid shipped 已付款 待发货 待收货 completed refunded 退款中 partially_paid processing delivered confirmed 已确认 checked_in",
		fresh:    "pending new created placed unconfirmed pending_confirmation 待确认 booked",
		unknown:  "not_confirmed payment_failed 支付失败 on_hold draft cart awaiting_payment_verification cancel_requested 取消申请 incomplete xyz 支付中",
	} {
		for _, word := range words(list) {
			expect.Equal(t, meaningOf(word), what, "%s", word)
		}
	}
}

func TestLabels_CommentsOfStatuses(t *testing.T) {
	for _, comment := range []string{
		"0:unpaid,1:paid,9:closed", "status 0-unpaid 1-paid 9-closed", "订单状态（0：unpaid；1：paid；9：closed）", "0->unpaid；1->paid；9->closed",
		"unpaid=0, paid=1, closed=9", "status (0 unpaid, 1 paid, 9 closed)", "状态[0:unpaid,1:paid,9:closed]", "status: 0 (unpaid), 1 (paid), 9 (closed)",
		"0.unpaid 1.paid 9.closed", "0 unpaid/1 paid/9 closed", "unpaid(0) paid(1) closed(9)",
	} {
		got := labels(comment, true)
		expect.That(t, got["0"] == "unpaid" && got["1"] == "paid" && got["9"] == "closed", "%s: %v", comment, got)
	}
	got := labels("cart:0 unpaid:1 paid:2 shipped:3 closed:4 done:5 (see wiki)", true)
	expect.That(t, got["0"] != "unpaid" && got["1"] != "paid", "labels are shifted: %v", got)
}

func TestUsualDelay_NeedsAnEdge(t *testing.T) {
	spread := func(n int, to time.Duration) (ages []time.Duration) {
		for i := range n {
			ages = append(ages, to*time.Duration(i)/time.Duration(n))
		}
		return ages
	}
	ended := spread(100, 48*time.Hour)
	d, n := usualDelay(spread(60, 30*time.Minute), ended)
	expect.That(t, d == 30*time.Minute && n == 60, "orders over half an hour: %v, %d", d, n)
	d, _ = usualDelay(append(spread(60, 30*time.Minute), spread(5, 40*24*time.Hour)...), ended)
	expect.Equal(t, d, 30*time.Minute, "with some that somebody has missed")
	d, _ = usualDelay(spread(10, 30*time.Minute), ended)
	expect.Equal(t, d, 0, "too few")
	d, _ = usualDelay(spread(300, 90*24*time.Hour), ended)
	expect.Equal(t, d, 0, "nobody closes orders")
}
