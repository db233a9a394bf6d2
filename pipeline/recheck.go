package pipeline

import (
	"context"
	"errors"
	"log/slog"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/store"
)

// recheck returns how the compensator asks the payment provider again about closed orders; nil if there is
// no provider, if closer.payment.recheck is empty, or if the orders that were closed are not in source.
func (a *App) recheck(source sweepSource) (*compensator.Recheck, error) {
	method, err := a.closeMethodOnce()
	c := a.o.Config.Closer.Payment
	closed, ok := source.(closedStore)
	if err != nil || method.provider == nil || len(c.Recheck) == 0 || !ok {
		return nil, err
	}
	ask := func(ctx context.Context, ids []string) ([]payment.Answer, error) {
		answers, err := method.provider.Ask(ctx, ids)
		for i, answer := range answers {
			if answer == payment.Cancelled {
				answers[i] = payment.Unpaid
			}
		}
		return answers, err
	}
	logger := a.o.Logger.With("stage", compensator.Stage, "asked_again", true)
	asker, err := payment.New(payment.Options{
		Store: lateStore{closed, logger}, Provider: payment.ProviderFunc(ask), Batch: c.Batch, // a ProviderFunc cannot cancel
		Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &compensator.Recheck{Store: closed, Asker: asker, Steps: c.Recheck, Batch: c.Batch, Rate: c.RecheckRate}, nil
}

// closedStore is a store that knows which orders were closed, and records their late payments.
type closedStore interface {
	compensator.ClosedStore
	RecordLate(ctx context.Context, payments []store.LatePayment) (int, error)
}

// lateStore is the payment.Store of a recheck. It closes no order. An order that is paid gets a late payment.
type lateStore struct {
	closedStore
	logger *slog.Logger
}

// PreviewClose implements payment.Store: the provider is asked about all of the orders.
func (lateStore) PreviewClose(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.Closed), nil
}

// CloseOrders implements payment.Store: the orders are closed already.
func (lateStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.AlreadyClosed), nil
}

// PayOrders implements payment.Store: it records late payments, and marks no order as paid.
func (s lateStore) PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes := outcomesOf(requests, orderclose.AlreadyClosed)
	for i, r := range requests { //mutant:recheck-unrecorded
		recorded, err := s.RecordLate(ctx, []store.LatePayment{{OrderID: r.OrderID, Source: store.SourceRecheck}})
		switch {
		case errors.Is(err, orderclose.ErrUnavailable):
			return nil, err
		case err != nil: // the next step asks again, and the others go on
			s.logger.Error("late payment could not be recorded, the order is asked about again", "err", err)
			outcomes[i].Verdict = orderclose.PaymentPending
		case recorded > 0:
			outcomes[i].Verdict = orderclose.AlreadyPaid
		}
	}
	return outcomes, nil
}

func outcomesOf(requests []orderclose.CloseRequest, verdict orderclose.Verdict) []orderclose.Outcome {
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: verdict}
	}
	return outcomes
}
