package httpclose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
)

// Limits of the size of a reply: a base size, and a size for each order.
const (
	replyBytes      = 64 << 10
	replyBytesOrder = 4 << 10
)

var (
	// errEmptyReply means that a reply has no verdict on any order that was asked for.
	errEmptyReply = errors.New("the reply has no verdict on any order of the request")
	// errNoVerdict is the failure of an order that two replies left out.
	errNoVerdict = errors.New("the service gave no verdict in two replies")
)

// ask asks for orders in one request, and once more for the orders that the reply leaves out. An order that is left out
// twice has failed. If the service is unavailable the second time, the order is Contended, which uses up no attempt.
func (s *Store) ask(ctx context.Context, path orderclose.Path, orders []orderclose.CloseRequest, got map[string]orderclose.Outcome) error {
	err := s.post(ctx, path, orders, got)
	if err != nil && !errors.Is(err, errEmptyReply) {
		return classify(err)
	}
	missing := slices.DeleteFunc(slices.Clone(orders), func(o orderclose.CloseRequest) bool {
		_, ok := got[o.OrderID]
		return ok
	})
	if len(missing) == 0 {
		return nil
	}
	if err != nil {
		return classify(err)
	}
	s.o.Logger.Warn("reply left out orders, asking once more", "orders", len(missing), "first", missing[0].OrderID)
	if err = s.post(ctx, path, missing, got); errors.Is(err, errEmptyReply) {
		err = nil // errNoVerdict below says the same
	}
	verdict, cause := orderclose.Failed, errors.Join(errNoVerdict, err)
	if errors.Is(err, orderclose.ErrUnavailable) {
		verdict, cause = orderclose.Contended, err
	}
	for _, o := range missing {
		if _, ok := got[o.OrderID]; !ok {
			got[o.OrderID] = orderclose.Outcome{OrderID: o.OrderID, Verdict: verdict, Due: o.Due, At: s.o.Now(), Err: cause}
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
	var answer reply
	err := s.endpoint.Do(ctx, func(ctx context.Context) error {
		return s.client.Post(ctx, q, &answer, replyBytes+int64(len(orders))*replyBytesOrder)
	})
	if err != nil {
		return err
	}
	all, others := verdicts(orders, answer.Verdicts, s.o.Now())
	if others > 0 {
		s.o.Logger.Warn("reply has verdicts on other orders, ignored", "verdicts", others)
	}
	if len(all) == 0 {
		return errEmptyReply
	}
	maps.Copy(got, all)
	return nil
}

// classify adds bisect.ErrUnclear to an error of a request that the service answered: an order or
// the service may be at fault. Other errors wrap orderclose.ErrUnavailable or ctx's error.
func classify(err error) error {
	_, status := errors.AsType[*httpcall.StatusError](err)
	if !errors.Is(err, orderclose.ErrUnavailable) && (status || errors.Is(err, httpcall.ErrReply) || errors.Is(err, errEmptyReply)) {
		return fmt.Errorf("%w: %w", bisect.ErrUnclear, err)
	}
	return err
}
