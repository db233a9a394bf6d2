package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// lateOrders is a Store with closed orders. The order known has a late payment.
type lateOrders struct {
	clientlessStore
	late []string
}

// clientlessStore has the methods of a Store that a recheck does not call.
type clientlessStore struct{ *store.Store }

func (s *lateOrders) RecordLate(_ context.Context, payments []store.LatePayment) (n int, _ error) {
	for _, p := range payments {
		if p.PaymentID != "" || p.Source != store.SourceRecheck {
			return n, fmt.Errorf("recorded %+v", p)
		}
		if p.OrderID == "locked" {
			return n, orderclose.ErrContended
		}
		if p.OrderID != "known" {
			s.late = append(s.late, p.OrderID)
			n++
		}
	}
	return n, nil
}

// lateAnswers answers questions, and is told to cancel nothing.
type lateAnswers map[string]payment.Answer

func (a lateAnswers) Ask(_ context.Context, ids []string) (answers []payment.Answer, _ error) {
	for _, id := range ids {
		answers = append(answers, a[id])
	}
	return answers, nil
}

func (a lateAnswers) Cancel(context.Context, []string) ([]payment.Answer, error) {
	panic("payments of closed orders were cancelled")
}

func TestRecheck_RecordsTheLatePaymentOfEachPaidOrderAndCancelsNothing(t *testing.T) {
	orders := &lateOrders{}
	a := recheckApp(t, orders, func(*config.Config) {})
	k, err := a.recheckOptions(orders)
	must.That(t, err == nil && k != nil && slices.Equal(k.Steps, []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}) && k.Batch == 100 && k.Rate == 20,
		"%+v, %v", k, err)
	var requests []orderclose.CloseRequest
	for _, id := range []string{"locked", "paid", "known", "unpaid", "cancelled", "unknown", "nothing"} {
		requests = append(requests, orderclose.CloseRequest{OrderID: id})
	}
	outcomes, err := k.Asker.CloseOrders(t.Context(), orderclose.PathSweep, requests)
	var got []string
	for _, o := range outcomes {
		got = append(got, o.OrderID+" "+string(o.Verdict))
	}
	want := []string{"locked payment_pending", "paid already_paid", "known already_closed", "unpaid already_closed", "cancelled already_closed",
		"unknown payment_pending", "nothing payment_pending"}
	expect.That(t, err == nil && slices.Equal(got, want), "%v, %v; want %v", got, err, want)
	expect.That(t, slices.Equal(orders.late, []string{"paid"}), "late payments of %v, want that of order paid", orders.late)
}

func TestRecheck_IsOffWithoutStepsAndWithoutAProvider(t *testing.T) {
	orders := &lateOrders{}
	a := recheckApp(t, orders, func(c *config.Config) { c.Closer.Payment.Recheck = nil })
	expect.Equal(t, must.Get(a.recheckOptions(orders))(t), nil, "?")
	a = recheckApp(t, orders, func(*config.Config) {})
	a.o.Payment = nil
	expect.Equal(t, must.Get(a.recheckOptions(orders))(t), nil, "?")
}

func recheckApp(t *testing.T, orders *lateOrders, change func(*config.Config)) *App {
	t.Helper()
	cfg := config.Default()
	change(cfg)
	a := must.Get(New(Options{
		Config: cfg, Store: orders, Connections: clients.Clients{}, Logger: slog.New(slog.DiscardHandler),
		Payment: lateAnswers{"paid": payment.Paid, "known": payment.Paid, "locked": payment.Paid, "unpaid": payment.Unpaid, "cancelled": payment.Cancelled,
			"unknown": payment.Unknown},
	}))(t)
	t.Cleanup(a.Close)
	return a
}

// counting counts in a bubble: it calls test with what counts for a time, and returns how often; overdue is what each count finds, negative: it fails.
func counting(t *testing.T, test func(c *orderCounter, overdue *int64, count func(time.Duration) int, known func() bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var overdue int64
		counts, known := 0, false
		c := &orderCounter{
			logger: slog.New(slog.DiscardHandler),
			count: func(context.Context) (backlog.OverdueOrders, error) {
				if counts++; overdue < 0 {
					return backlog.OverdueOrders{}, errors.New("no answer")
				}
				return backlog.OverdueOrders{At: time.Now(), Orders: overdue}, nil
			},
			report: func(o backlog.OverdueOrders) { known = !o.At.IsZero() },
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
		c.count = func(ctx context.Context) (backlog.OverdueOrders, error) {
			time.Sleep(12 * time.Second)
			return fast(ctx)
		}
		expect.Equal(t, count(11*time.Minute), 12, "counts of 12 s in eleven minutes")
		expect.That(t, known(), "the number is not known")
	})
}

func TestCountOrders_PaymentsThatCannotBeReadHideNoOverdueOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, known := must.Get(sqlite.Open(sqlite.Memory, nil))(t), false
		defer db.Close()
		must.Do(t, db.Migrate(t.Context()))
		must.Do(t, db.Gorm.Callback().Row().Before("gorm:row").Register("hang", func(tx *gorm.DB) {
			if strings.Contains(tx.Statement.SQL.String(), "late_payments") {
				<-tx.Statement.Context.Done()
			}
		}))
		none, late := func() map[string]time.Duration { return nil }, func(*store.LateSummary) {}
		countOrders(db, none, func(o backlog.OverdueOrders) { known = !o.At.IsZero() }, late, slog.New(slog.DiscardHandler)).Do(t.Context())
		expect.That(t, known, "the number of overdue orders is not known")
	})
}

func TestReady_NotWhileTheLoopCannotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &App{}
		away := errors.New("read overdue orders:\nthe read took too long")
		a.turnEnded(away)
		expect.Equal(t, len(a.Ready()), 0, "what is waited for after one turn")
		time.Sleep(failingFor)
		a.turnEnded(away)
		expect.Equal(t, strings.Join(a.Ready(), ""),
			"compensator: no overdue order could be read or closed since 2000-01-01T00:00:00Z, the last error is: read overdue orders: the read took too long", "ready")
		a.turnEnded(nil)
		expect.Equal(t, len(a.Ready()), 0, "what is waited for after a good turn")
	})
}

func TestReady_NotWithALockThatTheUserMayNotUse(t *testing.T) {
	a := &App{}
	a.lockChecked(fmt.Errorf("%w: %w: NOPERM", lock.ErrUnavailable, lock.ErrRefused))
	expect.That(t, len(a.Ready()) == 1 && strings.Contains(a.Ready()[0], "NOPERM"), "%v", a.Ready())
	a.lockChecked(lock.ErrUnavailable) // the loop works under another lock
	expect.That(t, len(a.Ready()) == 0 && len(a.Hints()) == 1, "%v, %v", a.Ready(), a.Hints())
	a.lockChecked(nil)
	expect.That(t, len(a.Ready())+len(a.Hints()) == 0, "%v, %v", a.Ready(), a.Hints())
}
