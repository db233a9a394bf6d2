package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var reminderPromises = []promise[shop]{
	{name: "AReminderIsAnEventAndARow", test: reminderIsAnEvent},
	{name: "OnlyOrdersThatWaitForPaymentAreReminded", test: remindsOnlyUnpaid},
	{name: "NoReminderIsWrittenTwiceByTwoProcesses", test: remindsOnce, tags: Dialect},
	{name: "NoReminderIsWrittenAfterAPayment", test: neverRemindsAfterPayment, tags: Dialect},
	{name: "AnOrderThatAPaymentLocksIsNotReminded", test: remindSkipsLocked, tags: Dialect},
	{name: "AnOrderWhoseDueTimeMovesIsRemindedAgain", test: remindsAgainAfterAMove},
	{name: "PausedOrdersAreNotReminded", test: remindSkipsPaused},
	{name: "OldRemindersAreForgotten", test: forgetsReminders},
}

// reminderOf returns the reminder of an order that was due to be written at this moment.
func reminderOf(o orderclose.Order, before time.Duration) store.Reminder {
	return store.Reminder{Order: o, Deadline: o.Due.Add(-time.Minute), Before: before}
}

// remind writes reminders, and returns how many were written and how many orders were locked.
func (s *shop) remind(reminders ...store.Reminder) (written, locked int) {
	s.Helper()
	slices.SortFunc(reminders, func(a, b store.Reminder) int { return a.Due.Compare(b.Due) })
	late, locked, err := s.Remind(s.Context(), reminders)
	s.must(err)
	return len(late), locked
}

// wantReminders checks the orders of the rows and of the events.
func (s *shop) wantReminders(ids ...string) {
	s.Helper()
	slices.Sort(ids)
	want(s, "rows of reminders", s.texts("SELECT order_id FROM order_reminders ORDER BY order_id, due_at"), ids)
	want(s, "events of reminders", s.texts("SELECT order_id FROM outbox_events WHERE kind = 'order.reminder' ORDER BY order_id"), ids)
}

func reminderIsAnEvent(t *testing.T, s *shop) {
	s.migrated("ink")
	o := s.order("a", 11*time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	begin, before := s.now(), s.state()
	late, locked, err := s.Remind(t.Context(), []store.Reminder{reminderOf(o, 10*time.Minute)})
	s.must(err)
	end := s.now()
	want(t, "locked", locked, 0)
	want(t, "state of the order", s.state(), before)
	s.wantReminders("a")
	n := must.Get(s.Dispatch(t.Context(), wire.EventOutbox, 0, 10, func(_ context.Context, rows []wire.OutboxRow) []int64 {
		id, got, err := orderclose.DecodeOrderReminder(rows[0].Payload)
		s.must(err)
		if at := got.RemindedAt; at.Before(begin) || at.After(end) || len(late) != 1 || late[0] != at.Sub(o.Due.Add(-11*time.Minute)) {
			t.Errorf("reminded at %v, late %v, between %v and %v", got.RemindedAt, late, begin, end)
		}
		want(t, "event", got, orderclose.OrderReminder{OrderID: "a", Category: "book", Due: o.Due, Deadline: o.Due.Add(-time.Minute),
			BeforeMillis: 600_000, RemindedAt: got.RemindedAt, Version: 1})
		want(t, "event's id", id, got.ID())
		return []int64{rows[0].ID}
	}))(t)
	want(t, "rows in the outbox", n, 1)
}

func remindsOnlyUnpaid(t *testing.T, s *shop) {
	s.migrated()
	s.orderOfEachStatus()
	due := s.now().Add(10 * time.Minute)
	s.exec("UPDATE orders SET expire_at = ? WHERE id <> 'overdue'", s.time(due))
	var reminders []store.Reminder
	for _, id := range []string{"paid", "closed", "cancelled", "shipped", "confirmed", "unpaid", "moved", "reached", "nobody's"} {
		reminders = append(reminders, reminderOf(orderclose.Order{ID: id, Due: due}, 10*time.Minute))
	}
	s.order("moved", time.Hour)
	soon := s.order("reached", 30*time.Second) // its deadline has passed
	overdue := orderclose.Order{ID: "overdue", Due: s.now().Add(-time.Minute)}
	written, locked := s.remind(append(reminders, reminderOf(soon, time.Second), reminderOf(overdue, time.Second))...)
	want(t, "written and locked", []int{written, locked}, []int{1, 0})
	s.wantReminders("unpaid")
}

// Two processes find the same orders at the same time.
func remindsOnce(t *testing.T, s *shop) {
	s.migrated()
	due := s.now().Add(10 * time.Minute)
	var orders []orderclose.Order
	var reminders []store.Reminder
	for i, id := range names("o%03d", 250) {
		o := orderclose.Order{ID: id, CreatedAt: due.Add(-time.Hour), Due: due.Add(time.Duration(i/7) * time.Millisecond)}
		orders, reminders = append(orders, o), append(reminders, reminderOf(o, 9*time.Minute))
	}
	s.bulk(orders)
	for range 3 { // an order that the other process had locked is reminded by the next round
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				_, _, err := s.Remind(t.Context(), reminders)
				expect.That(t, err == nil, "%v", err)
			})
		}
		both.Wait()
	}
	want(t, "rows", s.count("SELECT COUNT(*) FROM order_reminders"), 250)
	want(t, "events", s.count("SELECT COUNT(*) FROM outbox_events"), 250)
	want(t, "orders with events", s.count("SELECT COUNT(DISTINCT order_id) FROM outbox_events"), 250)

	longer, shorter := slices.Clone(reminders[:2]), slices.Clone(reminders[:2])
	for i := range longer {
		longer[i].Before, shorter[i].Before = 9*time.Minute+1, 2*time.Minute
	}
	written, _ := s.remind(longer...)
	want(t, "longer reminders, after a shorter one", written, 0)
	written, _ = s.remind(shorter...)
	want(t, "shorter reminders", written, 2)
}

// Payments and reminders of the same orders run at the same time. A reminder that was written when its order was
// paid already is counted by the version: the payment makes it 2.
func neverRemindsAfterPayment(t *testing.T, s *shop) {
	s.migrated()
	ids := names("o%02d", 40)
	var reminders []store.Reminder
	for _, id := range ids {
		reminders = append(reminders, reminderOf(s.order(id, 10*time.Minute), 10*time.Minute))
	}
	slices.SortFunc(reminders, func(a, b store.Reminder) int { return a.Due.Compare(b.Due) })
	var both sync.WaitGroup
	both.Go(func() {
		for _, id := range ids {
			_, err := s.Pay(t.Context(), id, "p")
			expect.That(t, err == nil, "%v", err)
		}
	})
	both.Go(func() {
		for _, r := range reminders {
			_, _, err := s.Remind(t.Context(), []store.Reminder{r})
			expect.That(t, err == nil, "%v", err)
		}
	})
	both.Wait()
	for _, payload := range s.texts("SELECT payload FROM outbox_events") {
		_, e, err := orderclose.DecodeOrderReminder([]byte(payload))
		expect.That(t, err == nil && e.Version == 1, "reminder %+v, %v; want it of an order that is not paid", e, err)
	}
	before := s.count("SELECT COUNT(*) FROM order_reminders")
	written, locked := s.remind(reminders...)
	want(t, "reminders after all payments, and locked orders", []int{written, locked}, []int{0, 0})
	want(t, "rows", s.count("SELECT COUNT(*) FROM order_reminders"), before)
	want(t, "paid orders", s.count("SELECT COUNT(*) FROM orders WHERE status = 1"), len(ids))
}

// While a payment is open, its order is not reminded, and the others are. The round that follows decides.
func remindSkipsLocked(t *testing.T, s *shop) {
	s.needs(rowLocks)
	s.migrated()
	a, b := reminderOf(s.order("a", 10*time.Minute), 10*time.Minute), reminderOf(s.order("b", 10*time.Minute), 10*time.Minute)
	payment := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
	defer payment.Rollback()
	must.Get(payment.ExecContext(t.Context(), "UPDATE orders SET status = 1, version = version + 1 WHERE id = 'a'"))(t)
	written, locked := s.remind(a, b)
	want(t, "written and locked", []int{written, locked}, []int{1, 1})
	s.wantReminders("b")
	s.must(payment.Commit())
	written, locked = s.remind(a, b)
	want(t, "written and locked after the payment", []int{written, locked}, []int{0, 0})
	s.wantReminders("b")
}

func remindsAgainAfterAMove(t *testing.T, s *shop) {
	s.migrated()
	o := s.order("a", 10*time.Minute)
	s.remind(reminderOf(o, 10*time.Minute))
	before := o
	o.Due = o.Due.Add(time.Hour)
	s.exec("UPDATE orders SET expire_at = ?", s.time(o.Due))
	for range 2 {
		s.remind(reminderOf(before, time.Minute), reminderOf(o, 10*time.Minute))
	}
	s.wantReminders("a", "a")
	want(t, "distinct due times", s.count("SELECT COUNT(DISTINCT due_at) FROM order_reminders"), 2)
}

func remindSkipsPaused(t *testing.T, s *shop) {
	s.migrated()
	r := reminderOf(s.order("a", 10*time.Minute), 10*time.Minute)
	for _, category := range []string{"", "book"} {
		s.pause(category, time.Hour, "the reason", false)
		written, locked := s.remind(r)
		want(t, "written and locked in a pause of "+category, []int{written, locked}, []int{0, 0})
		must.Get(s.Resume(t.Context(), category))(t)
	}
	s.pause("toy", time.Hour, "the reason", false)
	s.remind(r)
	s.wantReminders("a")
}

func forgetsReminders(t *testing.T, s *shop) {
	s.migrated()
	s.remind(reminderOf(s.order("a", 10*time.Minute), 10*time.Minute))
	for i, id := range names("o%03d", 600) {
		at := s.time(s.now().Add(-7*24*time.Hour - time.Duration(i)*time.Second - time.Duration(i/500)*time.Hour))
		s.exec("INSERT INTO order_reminders (due_at, order_id, before_ms, created_at) VALUES (?, ?, 60000, ?)", at, id, at)
	}
	s.must(s.ForgetReminders(t.Context(), s.now()))
	s.wantReminders("a")
	s.must(s.ForgetReminders(t.Context(), s.now()))
	s.wantReminders("a")
}

// mappedReminders tests the same in a shop's own tables.
func mappedReminders(t *testing.T, s *mapped) {
	s.begin()
	open, paid, moved := s.an(1, time.Hour), s.an(2, time.Hour), s.an(3, time.Hour)
	s.put(s.Mapping.Status.From[0], open, moved)
	s.put(s.Paid, paid)
	page := must.Get(s.DueBetween(t.Context(), s.now(), s.now().Add(2*time.Hour), orderclose.Order{}, 10))(t)
	var found []string
	for _, o := range page {
		found = append(found, o.ID)
	}
	want(t, "orders that wait", found, []string{open.ID, moved.ID})
	want(t, "attributes", page[0].Attributes, must.Get(s.Store.OrderHistory(t.Context(), open.ID))(t).Order.Attributes)
	moved.Due = moved.Due.Add(time.Minute)
	var reminders []store.Reminder
	for _, o := range append(page[:1], paid, moved, s.an(4, time.Hour)) {
		reminders = append(reminders, reminderOf(o, 50*time.Minute))
	}
	for range 2 {
		s.remind(reminders...)
	}
	s.wantReminders(open.ID)
	payload := s.texts("SELECT payload FROM outbox_events")[0]
	_, e, err := orderclose.DecodeOrderReminder([]byte(payload))
	s.must(err)
	want(t, "columns of the event", len(e.Columns), len(s.Mapping.EventColumns))
}
