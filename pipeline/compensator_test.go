package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
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
	k, err := a.recheck(orders)
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
	expect.Equal(t, must.Get(a.recheck(orders))(t), nil, "?")
	a = recheckApp(t, orders, func(*config.Config) {})
	a.o.Payment = nil
	expect.Equal(t, must.Get(a.recheck(orders))(t), nil, "?")
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
