package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// counting counts in a bubble: it calls test with what counts for a time, and returns how often; overdue is what each count finds, negative: it fails.
func counting(t *testing.T, test func(c *orderCounter, overdue *int64, count func(time.Duration) int, known func() bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var overdue int64
		counts, known := 0, false
		c := &orderCounter{
			logger: slog.New(slog.DiscardHandler),
			count: func(context.Context) (ops.OverdueOrders, error) {
				if counts++; overdue < 0 {
					return ops.OverdueOrders{}, errors.New("no answer")
				}
				return ops.OverdueOrders{At: time.Now(), Orders: overdue}, nil
			},
			report: func(o ops.OverdueOrders) { known = !o.At.IsZero() },
		}
		test(c, &overdue, func(lasts time.Duration) int {
			counts = 0
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				time.Sleep(c.once(t.Context()))
			}
			return counts
		}, func() bool { return known })
	})
}

func TestOrderCounter_CountsMoreOftenWhileOrdersAreOverdue(t *testing.T) {
	counting(t, func(_ *orderCounter, overdue *int64, count func(time.Duration) int, known func() bool) {
		expect.Equal(t, count(time.Minute), 2, "counts in a minute without overdue orders")
		*overdue = 7
		expect.Equal(t, count(time.Minute), 12, "counts in a minute with some")
		expect.That(t, known(), "the number is not known")
	})
}

func TestOrderCounter_TheLastCountHoldsForAMinute(t *testing.T) {
	counting(t, func(c *orderCounter, overdue *int64, count func(time.Duration) int, known func() bool) {
		count(time.Second)
		*overdue = -1
		count(time.Minute)
		expect.That(t, known(), "the last count does not hold for a minute")
		count(30 * time.Second)
		expect.That(t, !known(), "the number is known, and each count has failed for two minutes")
		*overdue = 0
		count(time.Second)
		c.idle()
		expect.That(t, !known(), "the number is known in a process that does not count")
	})
}

func TestOrderCounter_ACountThatTakesLongIsRare(t *testing.T) {
	counting(t, func(c *orderCounter, _ *int64, count func(time.Duration) int, known func() bool) {
		fast := c.count
		c.count = func(ctx context.Context) (ops.OverdueOrders, error) {
			time.Sleep(12 * time.Second)
			return fast(ctx)
		}
		expect.Equal(t, count(11*time.Minute), 12, "counts of 12 s in eleven minutes")
		expect.That(t, known(), "the number is not known")
	})
}
