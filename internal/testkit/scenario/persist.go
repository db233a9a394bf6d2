package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// retryInterval is the pause before a Persistent tries again.
const retryInterval = 500 * time.Millisecond

// Persistent is Orders whose methods retry while the database fails, as a shop does whose customers wait. The answer of a failed attempt may be lost
// although the attempt was committed. A retry that finds the work done therefore reports success.
type Persistent struct{ Orders }

// CreateOrder implements Orders.
func (p Persistent) CreateOrder(ctx context.Context, o orderclose.Order, items []shopdb.Item) error {
	tries, err := persist(ctx, func() error { return p.Orders.CreateOrder(ctx, o, items) })
	if tries > 1 && errors.Is(err, shopdb.ErrDuplicateOrder) {
		return nil
	}
	return err
}

// Checkout implements Orders. After a lost answer it runs fn again, although the rows that fn creates may exist.
func (p Persistent) Checkout(ctx context.Context, fn func(*shopdb.Tx) error) error {
	tries, err := persist(ctx, func() error { return p.Orders.Checkout(ctx, fn) })
	if tries > 1 && errors.Is(err, shopdb.ErrDuplicateOrder) {
		return nil
	}
	return err
}

// Pay implements Orders.
func (p Persistent) Pay(ctx context.Context, id, payment string) (a shopdb.Answer, err error) {
	tries, err := persist(ctx, func() error { a, err = p.Orders.Pay(ctx, id, payment); return err })
	if tries > 1 && a == shopdb.AlreadyPaid {
		a = shopdb.AnswerPaid
	}
	return a, err
}

// Cancel implements Orders.
func (p Persistent) Cancel(ctx context.Context, id string) (a shopdb.Answer, err error) {
	tries, err := persist(ctx, func() error { a, err = p.Orders.Cancel(ctx, id); return err })
	if tries > 1 && a == shopdb.AlreadyCancelled {
		a = shopdb.AnswerCancelled
	}
	return a, err
}

// persist calls do until its error is neither ErrUnavailable nor ErrContended, or ctx ends.
func persist(ctx context.Context, do func() error) (tries int, err error) {
	for tries = 1; ; tries++ {
		err = do()
		if !errors.Is(err, orderclose.ErrUnavailable) && !errors.Is(err, orderclose.ErrContended) || ctx.Err() != nil {
			return tries, err
		}
		Pause(ctx, retryInterval)
	}
}
