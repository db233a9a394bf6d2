// Package vendure plays the statements of Vendure at commit 1633446f against themselves, and against closes of
// orderclose with the mapping of this folder.
package vendure

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// vendure plays the statements of Vendure, in the order of its code. A flow calls between after its read and before its write.
type vendure struct{ *shoptest.Shop }

func each(t *testing.T, test func(v vendure)) {
	shoptest.Each(t, shoptest.OnPostgres, func(s *shoptest.Shop) {
		s.Exec(`INSERT INTO stock_level ("productVariantId", "stockLocationId", "stockOnHand", "stockAllocated") VALUES (1, 1, 1000, 0)`)
		test(vendure{s})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

// arrange puts 2 of variant 1 into an order and brings it to ArrangingPayment, 61 minutes ago.
func (v vendure) arrange(id int) {
	v.Exec(`INSERT INTO "order" (id, "createdAt", "updatedAt", code, state) VALUES ($1, timezone('UTC', now()) - interval '2 hours',
		timezone('UTC', now()) - interval '61 minutes', $2, 'ArrangingPayment')`, id, "C"+strconv.Itoa(id))
	v.Exec(`INSERT INTO order_line ("orderId", "productVariantId", quantity) VALUES ($1, 1, 2)`, id)
}

func (v vendure) state(id int) (state string) {
	v.Read([]any{&state}, `SELECT state FROM "order" WHERE id = $1`, id)
	return state
}

// addPayment is OrderService.addPaymentToOrder in the transaction of its mutation: it reads the order, creates the payment, writes the state by the id,
// and allocates stock, as a number that it has read. asked is called between the provider's answer and the first write.
func (v vendure) addPayment(id int, asked, allocating func()) (taken bool) {
	return v.Tx(func(q shoptest.Session) {
		var state string
		if q.Read([]any{&state}, `SELECT state FROM "order" WHERE id = $1`, id); state != "ArrangingPayment" {
			q.Rollback()
		}
		asked()
		q.Exec(`INSERT INTO payment ("orderId", state, amount) VALUES ($1, 'Settled', 990)`, id)
		q.Exec(`UPDATE "order" SET state = 'PaymentSettled', "updatedAt" = timezone('UTC', now()) WHERE id IN ($1)`, id)
		allocated := q.Int(`SELECT "stockAllocated" FROM stock_level WHERE "productVariantId" = 1 AND "stockLocationId" = 1`)
		allocating()
		q.Exec(`UPDATE stock_level SET "stockAllocated" = $1 WHERE id IN (1)`, allocated+2)
		q.Exec(`UPDATE "order" SET active = false, "orderPlacedAt" = timezone('UTC', now()) WHERE id IN ($1)`, id)
	})
}

// addItems is a customer who goes back from the payment to the cart: transitionToState.
func (v vendure) addItems(id int, between func()) (done bool) {
	return v.Tx(func(q shoptest.Session) {
		var state string
		if q.Read([]any{&state}, `SELECT state FROM "order" WHERE id = $1`, id); state != "ArrangingPayment" {
			q.Rollback()
		}
		between()
		q.Exec(`UPDATE "order" SET state = 'AddingItems', "updatedAt" = timezone('UTC', now()) WHERE id IN ($1)`, id)
	})
}

// Two payments for one variant at once: one allocation is lost, because Vendure writes the number that it has read.
func TestVendure_TwoPaymentsLoseAnAllocation(t *testing.T) {
	each(t, func(v vendure) {
		v.arrange(1)
		v.arrange(2)
		v.addPayment(1, nothing, func() { v.addPayment(2, nothing, nothing) })
		n := v.Int(`SELECT "stockAllocated" FROM stock_level`)
		expect.That(t, n == 2 && v.state(1)+v.state(2) == "PaymentSettledPaymentSettled", "%d are allocated for two paid orders of 2", n)
	})
}

// Nothing in Vendure closes an order that stays in ArrangingPayment. If another program does by a plain UPDATE, a
// payment that has read the order before opens it again.
func TestVendure_APaymentOverwritesACancel(t *testing.T) {
	each(t, func(v vendure) {
		v.arrange(1)
		v.addPayment(1, func() { v.Exec(`UPDATE "order" SET state = 'Cancelled', active = false WHERE id = 1`) }, nothing)
		expect.Equal(t, v.state(1), "PaymentSettled", "the order")
	})
}

// A close between the read and the write of a flow: the flow fails as a whole. Flows before a close are left as they
// are, and a cart that is changed again gets its hour again.
func TestClose_MeetsEachFlow(t *testing.T) {
	each(t, func(v vendure) {
		v.Adopt()
		sweep := func(want int) func() {
			return func() {
				expect.Equal(t, v.Sweep(), want, "orders that a sweep closes")
			}
		}
		v.arrange(1)
		v.arrange(2)
		expect.That(t, !v.addPayment(1, sweep(2), nothing), "a closed order is paid")
		v.arrange(3)
		expect.That(t, !v.addItems(3, sweep(1)), "a closed order is a cart again")
		v.arrange(4)
		v.addPayment(4, nothing, nothing)
		v.arrange(5)
		v.addItems(5, nothing)
		v.Exec(`UPDATE "order" SET state = 'ArrangingPayment' WHERE id = 5`)
		sweep(0)()
		for id, want := range []string{"Cancelled", "Cancelled", "Cancelled", "PaymentSettled", "ArrangingPayment"} {
			expect.Equal(t, v.state(id+1), want, "order %d", id+1)
		}
		expect.Equal(t, v.Int("SELECT COUNT(*) FROM payment"), 1, "payments")
		expect.Equal(t, v.Int(`SELECT COUNT(*) FROM "order" o JOIN history_entry h ON h."orderId" = o.id WHERE o.state = 'Cancelled' AND NOT active`), 3,
			"closed orders that have a history and are no cart")
	})
}

// Payments of 100 due orders meet sweeps: an order is paid and has a payment, or is cancelled and has none.
func TestClose_InACrowd(t *testing.T) {
	each(t, func(v vendure) {
		v.Adopt()
		var payments atomic.Int64
		closed := v.Crowd(100, func(i int) {
			v.arrange(i + 1)
			if rand.IntN(2) == 0 && v.addPayment(i+1, nothing, nothing) {
				payments.Add(1)
			}
		})
		count := func(where string) int { return v.Int(`SELECT COUNT(*) FROM "order" o WHERE ` + where) }
		paid := int(payments.Load())
		expect.That(t, count("state = 'PaymentSettled'") == paid && count("state = 'Cancelled'") == closed && paid+closed == 100,
			"%d paid and %d closes are expected", paid, closed)
		n := count(`(SELECT COUNT(*) FROM payment WHERE "orderId" = o.id) <> CASE state WHEN 'Cancelled' THEN 0 ELSE 1 END`)
		expect.That(t, n == 0, "%d orders differ from their payments", n)
	})
}
