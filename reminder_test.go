package orderclose_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestOrderReminder_IsTheEventOfTheDocument(t *testing.T) {
	due := time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)
	want := orderclose.OrderReminder{
		OrderID: "ORD-20260301-000017", Category: "virtual", Due: due, Deadline: due.Add(-time.Minute), BeforeMillis: 120_000,
		RemindedAt: time.Date(2026, 3, 1, 12, 2, 4, 517e6, time.UTC), Version: 1,
	}
	value := must.Get(want.Encode())(t)
	page := must.Get(os.ReadFile("docs/wire.md"))(t)
	_, documented, _ := strings.Cut(string(page), "```json reminder\n")
	documented, _, _ = strings.Cut(documented, "\n```")
	if diff := cmp.Diff(documented, string(value)); diff != "" {
		t.Errorf("the event (-wire.md +code):\n%s", diff)
	}
	id, got, err := orderclose.DecodeOrderReminder(value)
	if diff := cmp.Diff(want, got); diff != "" || id != want.ID() || err != nil {
		t.Errorf("id %q, %v: %s", id, err, diff)
	}
	if _, _, err := orderclose.DecodeOrderClosed(value); !errors.Is(err, orderclose.ErrOtherEvent) {
		t.Errorf("a reader of closed orders: %v", err)
	}
	closed := must.Get(orderclose.OrderClosed{OrderID: "a", ClosedAt: due}.Encode())(t)
	if _, _, err := orderclose.DecodeOrderReminder(closed); !errors.Is(err, orderclose.ErrOtherEvent) {
		t.Errorf("a reader of reminders: %v", err)
	}
	want.Due = due.Add(time.Hour)
	expect.That(t, want.ID() != id, "an order whose due time moved has the same event again")
}
