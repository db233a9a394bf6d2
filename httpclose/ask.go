package httpclose

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/signed"
)

// The largest reply that is read: so much, and so much for each order.
const (
	replyBytes      = 64 << 10
	replyBytesOrder = 4 << 10
)

var (
	// errNothing marks a reply that says nothing about any order that was asked for.
	errNothing = errors.New("the answer has no verdict of any order that was asked for")
	// errNoVerdict is the failure of an order that the service leaves out.
	errNoVerdict = errors.New("the service gave no verdict, asked twice")
)

// askAll asks for orders, as many at a time as one request may have.
func (s *Store) askAll(ctx context.Context, path orderclose.Path, orders []orderclose.CloseRequest) (map[string]orderclose.Outcome, error) {
	got := make(map[string]orderclose.Outcome, len(orders))
	for part := range slices.Chunk(orders, s.o.Batch) {
		if err := s.ask(ctx, path, part, got); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// ask asks for orders in one request, and once more for those that the answer leaves
// out. An order that is left out twice has failed.
func (s *Store) ask(ctx context.Context, path orderclose.Path, orders []orderclose.CloseRequest, got map[string]orderclose.Outcome) error {
	err := s.post(ctx, path, orders, got)
	if err != nil && !errors.Is(err, errNothing) {
		return mark(err)
	}
	missing := slices.DeleteFunc(slices.Clone(orders), func(o orderclose.CloseRequest) bool {
		_, ok := got[o.OrderID]
		return ok
	})
	if len(missing) == 0 {
		return nil
	}
	if err != nil {
		return mark(err)
	}
	s.o.Logger.Warn("the service left out orders, asking for them once more", "orders", len(missing), "first", missing[0].OrderID)
	if err = s.post(ctx, path, missing, got); errors.Is(err, errNothing) {
		err = nil // that is its answer
	}
	for _, o := range missing {
		if _, ok := got[o.OrderID]; !ok {
			got[o.OrderID] = failed(orderclose.Outcome{OrderID: o.OrderID, Due: o.Due, At: s.o.Now()}, errors.Join(errNoVerdict, err))
		}
	}
	return ctx.Err()
}

// post sends one request and adds the verdicts on its orders to got.
func (s *Store) post(ctx context.Context, path orderclose.Path, orders []orderclose.CloseRequest, got map[string]orderclose.Outcome) error {
	q := request{Path: path, Orders: make([]wireOrder, len(orders))}
	for i, o := range orders {
		q.Orders[i] = toWire(o)
	}
	var said reply
	err := s.endpoint.Do(ctx, func(ctx context.Context) error {
		return s.client.Post(ctx, q, &said, replyBytes+int64(len(orders))*replyBytesOrder)
	})
	if err != nil {
		return err
	}
	all, strays := verdicts(orders, said.Verdicts, s.o.Now())
	if strays > 0 {
		s.o.Logger.Warn("the service gave verdicts of orders that it was not asked for; they are left aside", "verdicts", strays)
	}
	if len(all) == 0 {
		return errNothing
	}
	for id, o := range all {
		got[id] = o
	}
	return nil
}

// mark says of an error of a request who may be at fault: with closing.ErrRefused if
// the service refuses what was sent, with closing.ErrUnclear if one order or the
// service may be. Other errors are orderclose.ErrUnavailable or of ctx.
func mark(err error) error {
	e, status := errors.AsType[*signed.StatusError](err)
	switch {
	case errors.Is(err, orderclose.ErrUnavailable):
		return err
	case status && e.Status < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", closing.ErrRefused, err)
	case status, errors.Is(err, signed.ErrReply), errors.Is(err, errNothing):
		return fmt.Errorf("%w: %w", closing.ErrUnclear, err)
	}
	return err
}
