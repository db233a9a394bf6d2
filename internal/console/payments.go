package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

// planLate plans to record what became of the money of a late payment: late is its id.
func (c *Console) planLate(fields url.Values, how store.LateResolution, who string) (planner, error) {
	if c.o.Store == nil {
		return nil, ops.ErrNoDatabase
	}
	id, err := strconv.ParseInt(fields.Get("late"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("late is %.40q, want the id of a late payment", fields.Get("late"))
	}
	return func(ctx context.Context, _ progress) (prepared, error) {
		p, err := c.o.Store.LatePayment(ctx, id)
		return prepared{summary: p, nothing: p.Resolution != "", planned: 1, run: func(ctx context.Context, _ progress) (any, error) {
			defer c.late.Forget()
			defer c.asks.Late.Forget()
			return c.o.Store.ResolveLate(ctx, id, how, cmp.Or(who, "console"))
		}}, err
	}, nil
}
