package compensator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// badPages is a store whose Overdue breaks its contract.
type badPages struct {
	*fakeStore
	overdue func(good []orderclose.Order, cutoff time.Time, after orderclose.Order, limit int) []orderclose.Order
}

func (s badPages) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	good, err := s.fakeStore.Overdue(ctx, cutoff, after, limit)
	return s.overdue(good, cutoff, after, limit), err
}

func TestSweep_EndsIfAPageBreaksTheContract(t *testing.T) {
	old := time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC) // the time of the bubble is 2000-01-01
	pages := 0
	order := func(id int, due time.Time) orderclose.Order {
		return orderclose.Order{ID: fmt.Sprintf("x%04d", id), Due: due}
	}
	for says, overdue := range map[string]func(good []orderclose.Order, cutoff time.Time, after orderclose.Order, limit int) []orderclose.Order{
		`order "x0001" again`: func([]orderclose.Order, time.Time, orderclose.Order, int) []orderclose.Order {
			return []orderclose.Order{order(1, old)}
		},
		"of an earlier page again": func(_ []orderclose.Order, _ time.Time, after orderclose.Order, _ int) []orderclose.Order {
			if pages++; pages > 1000 {
				return nil
			}
			n := 0
			_, _ = fmt.Sscanf(after.ID, "x%d", &n)
			return []orderclose.Order{order((n+1)%7, old)}
		},
		"returned 11 orders, and the limit is 10": func([]orderclose.Order, time.Time, orderclose.Order, int) (page []orderclose.Order) {
			for i := range 11 {
				page = append(page, order(i, old))
			}
			return page
		},
		`behind order "x0002"`: func([]orderclose.Order, time.Time, orderclose.Order, int) []orderclose.Order {
			return []orderclose.Order{order(2, old.Add(4*time.Hour)), order(1, old)}
		},
		"for orders due by": func(_ []orderclose.Order, cutoff time.Time, _ orderclose.Order, _ int) []orderclose.Order {
			return []orderclose.Order{order(1, cutoff.Add(2*time.Hour))}
		},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newCompensator(t, Options{Store: badPages{newStore(20), overdue}, PageSize: 10, Grace: -1}).Sweep(t.Context(), true)
				expect.That(t, err != nil && strings.Contains(err.Error(), says) && strings.Contains(err.Error(), "Overdue"), "%v, want an error about %s", err, says)
			})
		})
	}
}

// Such an order cannot be closed. It keeps no other order from being closed.
func TestSweep_AnOrderWithoutAnIDFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(20)
		s.orders[5].ID = ""
		r, err := newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 19 && r.Failed == 1 && strings.Contains(r.Failures[0].Error, "without an id"), "%+v, %v", r, err)
	})
}
