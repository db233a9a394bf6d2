package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var checkoutPromises = []promise[shop]{
	{name: "OutOfStockChangesNothing", test: outOfStock},
	{name: "DuplicateOrderChangesNothing", test: duplicateOrder},
	{name: "BadOrderIsRefused", test: badOrder},
	{name: "DueIsRoundedUp", test: dueIsRoundedUp, tags: Dialect},
	{name: "PayIsAcceptedUntilTheClose", test: payIsTakenUntilClosed},
	{name: "ConcurrentRepeatsOfALatePaymentAreOneRow", test: lateMoneyRace, tags: Dialect},
	{name: "CancelReleasesStockOnce", test: cancelGivesStockBackOnce},
	{name: "ShipRemovesStockOnce", test: shipTakesStockOutOnce},
	{name: "ConfirmFollowsShip", test: confirmFollowsShip},
	{name: "ViewOrderReturnsTheOrder", test: viewOrder},
	{name: "CheckoutIsAllOrNothing", test: checkoutIsAllOrNothing},
	{name: "PutStockKeepsTheReservedQuantity", test: putStockKeepsReserved, tags: Dialect},
}

// refused checks that creating an order fails with target and changes nothing.
func (s *shop) refused(target error, o orderclose.Order, items ...shopdb.Item) {
	s.Helper()
	before := s.state()
	err := s.CreateOrder(s.Context(), o, items)
	expect.That(s, errors.Is(err, target) && !errors.Is(err, orderclose.ErrUnavailable), "creating %+v with %v: %v; want %v", o, items, err, target)
	want(s, "state after the refusal", s.state(), before)
}

func outOfStock(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	o := orderclose.Order{ID: "a", Due: s.now(), CreatedAt: s.now()}
	s.refused(shopdb.ErrOutOfStock, o, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "nib", Quantity: 600}, shopdb.Item{SKU: "nib", Quantity: 401})
	s.refused(shopdb.ErrOutOfStock, o, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "none", Quantity: 1})
	s.must(s.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: "nib", Quantity: 1000}}))
	want(t, "stock when all is sold", s.stock(), []string{"ink 1000 0", "nib 0 1000"})
}

func duplicateOrder(t *testing.T, s *shop) {
	s.migrated("ink")
	o := s.order("a", time.Hour, shopdb.Item{SKU: "ink", Quantity: 1})
	s.refused(shopdb.ErrDuplicateOrder, o, shopdb.Item{SKU: "ink", Quantity: 1})
}

func badOrder(t *testing.T, s *shop) {
	s.migrated("ink")
	ok := orderclose.Order{ID: "a", Due: s.now(), CreatedAt: s.now()}
	noID, noDue := ok, ok
	noID.ID, noDue.Due = "", time.Time{}
	s.refused(orderclose.ErrEmptyID, noID)
	s.refused(orderclose.ErrNoDue, noDue)
	s.refused(shopdb.ErrBadItem, ok, shopdb.Item{SKU: "ink", Quantity: 0})
	s.refused(shopdb.ErrBadItem, ok, shopdb.Item{SKU: "ink", Quantity: -1})
	s.refused(shopdb.ErrBadItem, ok, shopdb.Item{SKU: "", Quantity: 1})
}

// Rounded down, a due time would be up to a millisecond early.
func dueIsRoundedUp(t *testing.T, s *shop) {
	s.migrated()
	due := s.now().Add(-time.Minute)
	s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: "a", CreatedAt: due, Due: due.Add(time.Nanosecond)}, nil))
	want(t, "due", s.close("a")[0].Due, due.Add(time.Millisecond))
}

func payIsTakenUntilClosed(t *testing.T, s *shop) {
	s.migrated()
	pay := func(id string) shopdb.Answer {
		t.Helper()
		return s.answer(s.Pay(t.Context(), id, "p"))
	}
	s.order("late", -time.Minute)
	want(t, "payment past due", pay("late"), shopdb.AnswerPaid)
	want(t, "payment again", pay("late"), shopdb.AlreadyPaid)
	s.order("closed", -time.Minute)
	s.close("closed")
	want(t, "payment after the close", pay("closed"), shopdb.PaidLate)
	s.order("cancelled", time.Minute)
	s.answer(s.Cancel(t.Context(), "cancelled"))
	want(t, "payment after a cancel", pay("cancelled"), shopdb.PaidLate)
	want(t, "payment of an unknown order", pay("x"), shopdb.NotFound)
	want(t, "payment of an impossible id", pay("late "), shopdb.NotFound)
	want(t, "orders with a time of payment", s.texts("SELECT id FROM orders WHERE paid_at IS NOT NULL"), []string{"late"})
	want(t, "late payments", s.late(), []string{"cancelled p -  callback ", "closed p -  callback "})
	for _, bad := range []string{"", " p", strings.Repeat("p", 65)} {
		expect.Is(t, expect.Err(s.Pay(t.Context(), "late", bad)), shopdb.ErrBadPayment, "payment %q", bad)
	}
}

// answer returns the answer of a call that must not fail.
func (s *shop) answer(a shopdb.Answer, err error) shopdb.Answer {
	s.Helper()
	s.must(err)
	return a
}

func lateMoneyRace(t *testing.T, s *shop) {
	s.migrated()
	s.order("a", -time.Minute)
	s.close("a")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			a, err := s.Pay(t.Context(), "a", "p")
			expect.That(t, err == nil && a == shopdb.PaidLate, "answer %s, %v", a, err)
		})
	}
	wg.Wait()
	want(t, "late payments", s.late(), []string{"a p -  callback "})
	want(t, "events", len(s.lateEvents()), 1)
}

func shipTakesStockOutOnce(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	ship := func(id string) shopdb.Answer {
		t.Helper()
		return s.answer(s.Ship(t.Context(), id))
	}
	s.order("a", time.Hour, shopdb.Item{SKU: "nib", Quantity: 2}, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "nib", Quantity: 1})
	want(t, "ship of an unpaid order", ship("a"), shopdb.NotPaid)
	want(t, "stock before", s.stock(), []string{"ink 999 1", "nib 997 3"})
	s.answer(s.Pay(t.Context(), "a", "p"))
	want(t, "ship", ship("a"), shopdb.AnswerShipped)
	want(t, "ship again", ship("a"), shopdb.AlreadyShipped)
	want(t, "ship of an unknown order", ship("x"), shopdb.NotFound)
	want(t, "stock", s.stock(), []string{"ink 999 0", "nib 997 0"})
	want(t, "ledger", s.ledger(), []string{"a ink ship 1", "a nib ship 3"})
	want(t, "pay, cancel and close of a shipped order",
		[]string{string(s.answer(s.Pay(t.Context(), "a", "p"))), string(s.answer(s.Cancel(t.Context(), "a"))), verdicts(s.close("a"))[0]},
		[]string{"already_paid", "already_paid", "a already_paid"})
	s.order("closed", -time.Hour)
	s.close("closed")
	want(t, "ship of a closed order", ship("closed"), shopdb.AlreadyClosed)
}

func confirmFollowsShip(t *testing.T, s *shop) {
	s.migrated()
	confirm := func(id string) shopdb.Answer {
		t.Helper()
		return s.answer(s.Confirm(t.Context(), id))
	}
	s.order("a", time.Hour)
	want(t, "confirm of an unpaid order", confirm("a"), shopdb.NotShipped)
	s.answer(s.Pay(t.Context(), "a", "p"))
	want(t, "confirm of a paid order", confirm("a"), shopdb.NotShipped)
	s.answer(s.Ship(t.Context(), "a"))
	want(t, "confirm", confirm("a"), shopdb.AnswerConfirmed)
	want(t, "confirm again", confirm("a"), shopdb.AlreadyConfirmed)
	want(t, "ship of a confirmed order", s.answer(s.Ship(t.Context(), "a")), shopdb.AlreadyShipped)
	want(t, "status and version", s.texts("SELECT CONCAT_WS(' ', status, version) FROM orders"), []string{"5 4"})
}

func viewOrder(t *testing.T, s *shop) {
	s.migrated()
	o := s.order("a", time.Hour)
	v := must.Get(s.ViewOrder(t.Context(), "a"))(t)
	want(t, "order view", v, shopdb.View{Order: o, Status: shopdb.Unpaid, Version: 1, At: v.At})
	if v.PastDue() || v.At.Before(o.CreatedAt) {
		t.Errorf("read at %v, past due %v: %+v", v.At, v.PastDue(), v)
	}
	s.order("due", -time.Millisecond)
	want(t, "past due", must.Get(s.ViewOrder(t.Context(), "due"))(t).PastDue(), true)
	for _, id := range []string{"x", "a ", ""} {
		expect.Is(t, expect.Err(s.ViewOrder(t.Context(), id)), shopdb.ErrNoOrder, "order %q", id)
	}
}

func checkoutIsAllOrNothing(t *testing.T, s *shop) {
	s.migrated("ink")
	s.exec("CREATE TABLE own (n INT)")
	before := s.state()
	no := errors.New("no")
	run := func(end error) error {
		return s.Checkout(t.Context(), func(tx *shopdb.Tx) error {
			now := must.Get(tx.Now())(t)
			s.must(tx.CreateOrder(orderclose.Order{ID: "a", CreatedAt: now, Due: now.Add(time.Hour)}, []shopdb.Item{{SKU: "ink", Quantity: 1}}))
			must.Get(tx.SQL().ExecContext(t.Context(), "INSERT INTO own VALUES (1)"))(t)
			must.Get(tx.Pay("a", "p"))(t)
			return end
		})
	}
	if err := run(no); !errors.Is(err, no) {
		t.Errorf("%v; want the error of fn", err)
	}
	want(t, "state after a roll-back", s.state(), before)
	want(t, "own rows after a roll-back", s.count("SELECT COUNT(*) FROM own"), 0)
	s.must(run(nil))
	want(t, "own rows", s.count("SELECT COUNT(*) FROM own"), 1)
	want(t, "orders", s.texts("SELECT CONCAT_WS(' ', id, status, payment_id) FROM orders"), []string{"a 1 p"})
}

func cancelGivesStockBackOnce(t *testing.T, s *shop) {
	s.migrated("ink")
	cancel := func(id string) shopdb.Answer {
		t.Helper()
		return s.answer(s.Cancel(t.Context(), id))
	}
	s.order("a", time.Hour, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "ink", Quantity: 1})
	want(t, "cancel", cancel("a"), shopdb.AnswerCancelled)
	want(t, "cancel again", cancel("a"), shopdb.AlreadyCancelled)
	want(t, "stock", s.stock(), []string{"ink 1000 0"})
	want(t, "ledger", s.ledger(), []string{"a ink cancel 3"})
	want(t, "cancel of an unknown order", cancel("x"), shopdb.NotFound)

	s.order("paid", time.Hour)
	s.answer(s.Pay(t.Context(), "paid", "p"))
	want(t, "cancel of a paid order", cancel("paid"), shopdb.AlreadyPaid)
	s.order("closed", -time.Hour)
	s.close("closed")
	want(t, "cancel of a closed order", cancel("closed"), shopdb.AlreadyClosed)
}

func putStockKeepsReserved(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", time.Hour, shopdb.Item{SKU: "ink", Quantity: 2})
	s.must(s.PutStock(t.Context(), "ink", 5))
	s.must(s.PutStock(t.Context(), "ink", 5)) // a repeat is no error
	want(t, "stock", s.stock(), []string{"ink 5 2"})
	err := s.PutStock(t.Context(), "ink", -1)
	expect.That(t, err != nil, "stock below zero was accepted")
}
