package scenario

import (
	"context"
	"errors"
	"time"

	"orderclose"
	"orderclose/internal/store"
)

// askAgain is how soon a Persistent asks again.
const askAgain = 500 * time.Millisecond

// Persistent is a Store that asks again while its database fails, as a shop does
// whose customers wait. Where the answer of an earlier try was lost, it finds
// what that had done.
type Persistent struct{ Store }

// CreateOrder is Store's.
func (p Persistent) CreateOrder(ctx context.Context, o orderclose.Order, items []store.Item) error {
	tries, err := persist(ctx, func() error { return p.Store.CreateOrder(ctx, o, items) })
	if tries > 1 && errors.Is(err, store.ErrDuplicateOrder) {
		return nil
	}
	return err
}

// Checkout is Store's. fn is run again after an answer that was lost, and what it
// creates may be there then.
func (p Persistent) Checkout(ctx context.Context, fn func(*store.Tx) error) error {
	tries, err := persist(ctx, func() error { return p.Store.Checkout(ctx, fn) })
	if tries > 1 && errors.Is(err, store.ErrDuplicateOrder) {
		return nil
	}
	return err
}

// Pay is Store's.
func (p Persistent) Pay(ctx context.Context, id, payment string) (a store.Answer, err error) {
	tries, err := persist(ctx, func() error { a, err = p.Store.Pay(ctx, id, payment); return err })
	if tries > 1 && a == store.AlreadyPaid {
		a = store.NowPaid
	}
	return a, err
}

// Cancel is Store's.
func (p Persistent) Cancel(ctx context.Context, id string) (a store.Answer, err error) {
	tries, err := persist(ctx, func() error { a, err = p.Store.Cancel(ctx, id); return err })
	if tries > 1 && a == store.AlreadyCancelled {
		a = store.NowCancelled
	}
	return a, err
}

// persist tries until the answer is the database's own.
func persist(ctx context.Context, do func() error) (tries int, err error) {
	for tries = 1; ; tries++ {
		err = do()
		if !errors.Is(err, orderclose.ErrUnavailable) && !errors.Is(err, orderclose.ErrContended) || ctx.Err() != nil {
			return tries, err
		}
		sleepUntil(ctx, time.Now().Add(askAgain))
	}
}
