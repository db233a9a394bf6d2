package httpclose

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"orderclose"
	"orderclose/internal/signed"
)

// maxSuspects orders that failed alone, with none that did not, are enough to
// say that it is the service.
const maxSuspects = 3

// The largest reply that is read: so much, and so much for each order.
const (
	replyBytes      = 64 << 10
	replyBytesOrder = 4 << 10
)

// round is one CloseOrders: what was said of which order.
type round struct {
	s        *Store
	path     orderclose.Path
	got      map[string]orderclose.Outcome
	suspects []suspect
	again    bool // what is asked for now was left out before
	dark     bool // in the round before nobody got a verdict
}

// suspect is an order whose request failed although nothing else was in it.
type suspect struct {
	order orderclose.CloseRequest
	err   error
}

// errNothing marks a reply that says nothing of what was asked.
var errNothing = errors.New("the answer has no verdict of any order that was asked for")

// errNobody comes with orderclose.ErrUnavailable: the service answers, and gives
// nobody a verdict.
var errNobody = errors.New("nobody gets a verdict")

// begin asks for all orders; after a round in which nobody got a verdict, for any
// one of them first, so that a service that is down is not asked a dozen times to
// say so.
func (r *round) begin(ctx context.Context, orders []orderclose.CloseRequest) error {
	if r.dark {
		i := rand.IntN(len(orders))
		orders[0], orders[i] = orders[i], orders[0]
		if err := r.ask(ctx, orders[:1]); err != nil {
			return err
		}
		if err := r.judge(); err != nil {
			return err
		}
		orders, r.suspects = orders[1:], nil
	}
	return r.askAll(ctx, orders)
}

// askAll asks for orders, as many at a time as one request may have.
func (r *round) askAll(ctx context.Context, orders []orderclose.CloseRequest) error {
	for part := range slices.Chunk(orders, r.s.o.Batch) {
		if err := r.ask(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// ask asks for orders in one request. One that the service refuses, a 413 or a
// 422, or that ends in a 500 or a reply that nobody can read, is halved: one order
// may do that to all. Those that do it alone become suspects.
func (r *round) ask(ctx context.Context, orders []orderclose.CloseRequest) error {
	err := r.post(ctx, orders)
	switch {
	case err == nil:
		return nil
	case !anybodys(err) && !refusal(err):
		return err
	case len(orders) > 1:
		// In another order each time: those at the front may all be to blame.
		rand.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
		half := len(orders) / 2
		if err := r.ask(ctx, orders[:half]); err != nil {
			return err
		}
		return r.ask(ctx, orders[half:])
	}
	r.suspects = append(r.suspects, suspect{orders[0], err})
	if len(r.suspects) >= maxSuspects && len(r.got) == 0 {
		return unavailable(err)
	}
	return nil
}

// fail notes that an order has failed.
func (r *round) fail(o orderclose.CloseRequest, err error) {
	r.got[o.OrderID] = failed(orderclose.Outcome{OrderID: o.OrderID, Due: o.Due, At: r.s.o.Now()}, err)
}

// post sends one request and takes in what is said of its orders.
func (r *round) post(ctx context.Context, orders []orderclose.CloseRequest) error {
	q := request{Path: r.path, Orders: make([]wireOrder, len(orders))}
	for i, o := range orders {
		q.Orders[i] = toWire(o)
	}
	var said reply
	err := r.s.endpoint.Do(ctx, func(ctx context.Context) error {
		return r.s.client.Post(ctx, q, &said, replyBytes+int64(len(orders))*replyBytesOrder)
	})
	if err != nil {
		return err
	}
	got, strays := verdicts(orders, said.Verdicts, r.s.o.Now())
	if strays > 0 {
		r.s.o.Logger.Warn("the service gave verdicts of orders that it was not asked for; they are left aside", "verdicts", strays)
	}
	switch {
	case len(got) == 0 && r.again:
		return nil // asked twice: that is its answer
	case len(got) == 0:
		return errNothing
	}
	r.s.blame.heard(got)
	for id, o := range got {
		r.got[id] = o
	}
	return nil
}

// judge decides on the suspects. That others got a verdict says that the service
// works, and they are to blame; so does a refusal, of the one or two orders that
// there are. That nobody gets a verdict says that it does not work, and no order
// has failed.
func (r *round) judge() error {
	for _, s := range r.suspects {
		if len(r.got) == 0 && (r.dark || !refusal(s.err)) && !r.s.blame.certain(s.order.OrderID) {
			return unavailable(s.err)
		}
	}
	for _, s := range r.suspects {
		r.s.blame.acquit(s.order.OrderID)
		r.fail(s.order, s.err)
	}
	return nil
}

// anybodys says whether a request failed in a way that an order or the service
// may be to blame for.
func anybodys(err error) bool {
	e, ok := errors.AsType[*signed.StatusError](err)
	return errors.Is(err, signed.ErrReply) || errors.Is(err, errNothing) || ok && e.Status == http.StatusInternalServerError
}

// refusal says whether the service will not have what was sent, and says so.
func refusal(err error) bool {
	e, ok := errors.AsType[*signed.StatusError](err)
	return ok && e.Status < 500 && !errors.Is(err, orderclose.ErrUnavailable)
}

func unavailable(err error) error {
	return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, errNobody, err)
}
