package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

// tried says what a trial close would have changed.
func tried(t store.Trial) string {
	if t.OrderID == "" {
		return "there is no unpaid order"
	}
	return fmt.Sprintf("order %s could be closed, and was not: %s", oneLine(t.OrderID, 100), strings.Join(t.Changes, "; "))
}

// checkTrial tries to close an order, for doctor --try-close.
func (s *session) checkTrial(ctx context.Context) checkup {
	const check = "close of one order"
	if s.cfg.Closer.Kind == config.KindHTTP {
		return skipped(check, "orders are closed by a service over HTTP")
	}
	return s.check(ctx, check, func(ctx context.Context, check string) checkup {
		t, err := s.Store.TryClose(ctx)
		if wrong := mappingFindings(check, err); wrong != nil {
			return wrong[0]
		}
		if err != nil {
			return finding(check, err.Error(), "docs/mapping.md#trying-a-close says what a trial needs")
		}
		return passed(check, "%s", tried(t))
	}, "closer.kind")
}

// tryClose tries to close an order in the shop's own tables. That it cannot be tried is only printed: the user of
// migrate may lack the privileges of a closer.
func (c *common) tryClose(ctx context.Context, s *session) error {
	if s.cfg.Orders == nil || s.cfg.Closer.Kind == config.KindHTTP {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	t, err := s.Store.TryClose(ctx)
	switch {
	case errors.Is(err, store.ErrNoTrial):
		fmt.Fprintln(c.env.Stderr, "note:", err)
	case err != nil:
		return findings(err)
	default:
		fmt.Fprintln(c.env.Stderr, "close of one order:", oneLine(tried(t), 2000))
	}
	return nil
}
