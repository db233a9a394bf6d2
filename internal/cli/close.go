package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// maxReason is the length of the column left_out of the table receipts, in characters.
const maxReason = 255

func newClose(c *common) *cobra.Command {
	var without store.Without
	var yes bool
	cmd := &cobra.Command{
		Use:   "close ORDER --without-stock SKU [--without-stock SKU]... --reason TEXT [--yes]",
		Short: "Close an order whose stock can never come back",
		Long: `Close an unpaid order that is due, without the stock of SKUs that have no row in the table of stock any more,
such as those of a deleted product. The rest of its stock comes back. The receipt gets the quantity 0
and the reason, so the stock is not released later either. Without --yes it shows why the order is open.

Exits 5 if the order is not closed: it is paid, not due or paused, the payment provider has no answer, a SKU is
not in the order or has a row in the table of stock, or there is not one table of stock.`,
		Example: "  orderclose close order-17 --without-stock 4711 --reason 'product deleted' --yes",
		Args:    oneArg("the order's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason := strings.TrimSpace(without.Reason); len(without.SKUs) == 0 || reason == "" || utf8.RuneCountInString(reason) > maxReason {
				return Exit(Usage, fmt.Errorf("name the SKUs with --without-stock, and say why with --reason, in at most %d characters", maxReason))
			}
			return c.closeWithout(cmd.Context(), args[0], without, yes)
		},
	}
	cmd.Flags().StringArrayVar(&without.SKUs, "without-stock", nil, "a SKU of the order whose stock does not come back; may be repeated")
	cmd.Flags().StringVar(&without.Reason, "reason", "", "why, for the receipt and the audit log")
	cmd.Flags().BoolVar(&yes, "yes", false, "close the order")
	return cmd
}

func (c *common) closeWithout(ctx context.Context, id string, without store.Without, yes bool) error {
	s, a, err := c.openSweep(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.pipeline().ClosesInDatabase() {
		return Exit(Refused, errors.New("a service closes the orders: end the order there"))
	}
	o, err := s.Store.WhyOpen(ctx, orderclose.CloseRequest{OrderID: id}, false)
	switch cause, why := o.Why(); {
	case err != nil:
		return err
	case cause != orderclose.StockRowMissing: // before the payment provider cancels anything
		return Exit(Refused, fmt.Errorf("order %s: %s; only the stock of a SKU without a row can be left out", id, cmp.Or(why, "its rows do not keep it open")))
	case !yes:
		fmt.Fprintf(c.env.Stdout, "order %s: %s; nothing was changed, --yes closes it without the stock of %q\n", id, why, without.SKUs)
		return nil
	}
	o, err = a.CloseOrder(store.WithoutStock(ctx, without), id)
	if errors.Is(err, orderclose.ErrUnavailable) {
		return err
	}
	if err != nil || o.Verdict != orderclose.Closed {
		return Exit(Refused, cmp.Or(err, fmt.Errorf("order %s was not closed: its verdict is %s", id, o.Verdict)))
	}
	fmt.Fprintf(c.env.Stdout, "order %s is closed, without the stock of %q\n", id, without.SKUs)
	return nil
}
