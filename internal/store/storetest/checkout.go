package storetest

import (
	"errors"
	"testing"
	"time"

	"orderclose"
	"orderclose/internal/store"
)

var checkoutClaims = []claim{
	{"OutOfStockChangesNothing", outOfStock},
	{"DuplicateOrderChangesNothing", duplicateOrder},
	{"BadOrderIsRefused", badOrder},
	{"DueIsRoundedUp", dueIsRoundedUp},
	{"PayIsTakenUntilClosed", payIsTakenUntilClosed},
	{"CancelGivesStockBackOnce", cancelGivesStockBackOnce},
	{"PutStockKeepsWhatIsReserved", putStockKeepsReserved},
}

// refused creates an order and wants that error, and nothing changed.
func (s *shop) refused(target error, o orderclose.Order, items ...store.Item) {
	s.Helper()
	before := s.state()
	if err := s.CreateOrder(s.Context(), o, items); !errors.Is(err, target) || errors.Is(err, orderclose.ErrUnavailable) {
		s.Errorf("creating %+v with %v: %v; want %v", o, items, err, target)
	}
	want(s, "state after the refusal", s.state(), before)
}

func outOfStock(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	o := orderclose.Order{ID: "a", Due: s.now(), CreatedAt: s.now()}
	s.refused(store.ErrOutOfStock, o, store.Item{SKU: "ink", Quantity: 1}, store.Item{SKU: "nib", Quantity: 600}, store.Item{SKU: "nib", Quantity: 401})
	s.refused(store.ErrOutOfStock, o, store.Item{SKU: "ink", Quantity: 1}, store.Item{SKU: "none", Quantity: 1})
	s.must(s.CreateOrder(t.Context(), o, []store.Item{{SKU: "nib", Quantity: 1000}}))
	want(t, "stock when all is sold", s.stock(), []string{"ink 1000 0", "nib 0 1000"})
}

func duplicateOrder(t *testing.T, s *shop) {
	s.migrated("ink")
	o := s.order("a", time.Hour, store.Item{SKU: "ink", Quantity: 1})
	s.refused(store.ErrDuplicateOrder, o, store.Item{SKU: "ink", Quantity: 1})
}

func badOrder(t *testing.T, s *shop) {
	s.migrated("ink")
	ok := orderclose.Order{ID: "a", Due: s.now(), CreatedAt: s.now()}
	noID, noDue := ok, ok
	noID.ID, noDue.Due = "", time.Time{}
	s.refused(orderclose.ErrEmptyID, noID)
	s.refused(orderclose.ErrNoDue, noDue)
	s.refused(store.ErrBadItem, ok, store.Item{SKU: "ink", Quantity: 0})
	s.refused(store.ErrBadItem, ok, store.Item{SKU: "ink", Quantity: -1})
	s.refused(store.ErrBadItem, ok, store.Item{SKU: "", Quantity: 1})
}

// Cut off, a due time would come up to a millisecond too early.
func dueIsRoundedUp(t *testing.T, s *shop) {
	s.migrated()
	due := s.now().Add(-time.Minute)
	s.must(s.CreateOrder(t.Context(), orderclose.Order{ID: "a", CreatedAt: due, Due: due.Add(time.Nanosecond)}, nil))
	want(t, "due", s.close("a")[0].Due, due.Add(time.Millisecond))
}

func payIsTakenUntilClosed(t *testing.T, s *shop) {
	s.migrated()
	pay := func(id string) store.Answer {
		t.Helper()
		a, err := s.Pay(t.Context(), id)
		s.must(err)
		return a
	}
	s.order("late", -time.Minute)
	want(t, "payment past due", pay("late"), store.NowPaid)
	want(t, "payment again", pay("late"), store.AlreadyPaid)
	s.order("closed", -time.Minute)
	s.close("closed")
	want(t, "payment after the close", pay("closed"), store.AlreadyClosed)
	s.order("cancelled", time.Minute)
	_, err := s.Cancel(t.Context(), "cancelled")
	s.must(err)
	want(t, "payment after a cancel", pay("cancelled"), store.AlreadyCancelled)
	want(t, "payment of nothing", pay("x"), store.NotFound)
	want(t, "payment of an impossible id", pay("late "), store.NotFound)
	want(t, "orders with a time of payment", s.texts("SELECT id FROM orders WHERE paid_at IS NOT NULL"), []string{"late"})
}

func cancelGivesStockBackOnce(t *testing.T, s *shop) {
	s.migrated("ink")
	cancel := func(id string) store.Answer {
		t.Helper()
		a, err := s.Cancel(t.Context(), id)
		s.must(err)
		return a
	}
	s.order("a", time.Hour, store.Item{SKU: "ink", Quantity: 2}, store.Item{SKU: "ink", Quantity: 1})
	want(t, "cancel", cancel("a"), store.NowCancelled)
	want(t, "cancel again", cancel("a"), store.AlreadyCancelled)
	want(t, "stock", s.stock(), []string{"ink 1000 0"})
	want(t, "ledger", s.ledger(), []string{"a ink cancel 3"})
	want(t, "cancel of nothing", cancel("x"), store.NotFound)

	s.order("paid", time.Hour)
	_, err := s.Pay(t.Context(), "paid")
	s.must(err)
	want(t, "cancel of a paid one", cancel("paid"), store.AlreadyPaid)
	s.order("closed", -time.Hour)
	s.close("closed")
	want(t, "cancel of a closed one", cancel("closed"), store.AlreadyClosed)
}

func putStockKeepsReserved(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", time.Hour, store.Item{SKU: "ink", Quantity: 2})
	s.must(s.PutStock(t.Context(), "ink", 5))
	s.must(s.PutStock(t.Context(), "ink", 5)) // the same again is no error
	want(t, "stock", s.stock(), []string{"ink 5 2"})
	if err := s.PutStock(t.Context(), "ink", -1); err == nil {
		t.Error("stock below zero was accepted")
	}
}
