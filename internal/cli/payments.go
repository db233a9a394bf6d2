package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

func newPayments(c *common) *cobra.Command {
	cmd := group("payments", "Late payments: money that came after its order was closed", newPaymentsLate(c), newPaymentsResolve(c))
	cmd.Long = `Late payments: money that came after its order was closed or cancelled, or
twice for one order. Each stays in the table late_payments, and OrdercloseLatePaymentsUnresolved
fires, until somebody has said what became of the money.`
	return cmd
}

func newPaymentsLate(c *common) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "late [--all]",
		Short: "List the late payments that nobody has resolved",
		Long: fmt.Sprintf(`List the late payments that nobody has resolved, the oldest first; with --all also
the resolved ones, the newest first. At most %d are listed. It changes nothing.

  payment  the provider's id; -: the provider was asked about the order and told no id
  amount   in minor units of the currency, such as cents; -: unknown
  by       callback: the provider told the shop; recheck: the provider was asked again;
           same_id: a callback, and somebody may have decided about this money
           before. Ask the provider before money goes back
  key      the idempotency key of a refund at the provider; -: the payment is unknown

Of two payments of an order, one with an id and one without, either may tell of the same
money. Each then names the other, and if nobody has resolved them, they count once.

Exits 3 if a late payment is not resolved.`, ops.LateListed),
		Example: "  orderclose payments late -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(c.open(environ.EnvDSN))(func(s *session) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
				defer cancel()
				return c.paymentsLate(ctx, s.pipeline(), all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list the resolved ones")
	return cmd
}

// latePayments is the output of payments late.
type latePayments struct {
	store.LateSummary
	Payments []store.LatePayment `json:"payments"`
}

func (c *common) paymentsLate(ctx context.Context, p ops.Pipeline, all bool) error {
	sum, err := p.CountLate(ctx)
	if err != nil {
		return err
	}
	found, err := p.LatePayments(ctx, all)
	return c.answer(latePayments{sum, found}, err, func(w io.Writer) {
		if len(found) > 0 {
			printLate(w, found)
			text.PrintAny(w, sum.Unresolved, "\n%d not resolved; say what became of the money: orderclose payments resolve ID --refunded")
		} else {
			fmt.Fprintln(w, "no late payment waits for a decision")
		}
	}, exitIf(sum.Unresolved > 0, Findings, "%s not resolved", text.Counted(sum.Unresolved, "late payment is", "late payments are")))
}

func printLate(w io.Writer, payments []store.LatePayment) {
	fmt.Fprintln(w, "id\torder\tpayment\tamount\tfound\tby\tresolved\tkey")
	for _, p := range payments {
		resolved := "-"
		if len(p.PerhapsSame) > 0 {
			resolved = "-, perhaps the same money as " + ids(p.PerhapsSame)
		}
		if p.Resolution != "" {
			resolved = fmt.Sprintf("%s %s by %s", line(string(p.Resolution)), text.Stamp(p.ResolvedAt), text.OneLine(p.ResolvedBy, 60))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			p.ID, text.OneLine(p.OrderID, 64), cmp.Or(text.OneLine(p.PaymentID, 80), "-"), cmp.Or(text.OneLine(p.Money(), 80), "-"),
			text.Stamp(p.FoundAt), line(string(p.Source)), resolved, cmp.Or(text.OneLine(p.RefundKey, 1000), "-"))
	}
}

// ids joins the ids of payments that are late.
func ids(of []int64) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(of), " ", ", "), "[]") }

func newPaymentsResolve(c *common) *cobra.Command {
	var refunded, reopened, yes bool
	cmd := &cobra.Command{
		Use:   "resolve ID (--refunded | --reopened) [--yes]",
		Short: "Say what became of the money of a late payment",
		Long: `Say what became of the money of a late payment. The command moves no money and
changes no order: give the money back at the provider, or deliver the goods, and then say so. ID is
the first column of orderclose payments late.

Without --yes the payment is shown and nothing is changed. The row keeps who resolved it, as
user@host, and when. It cannot be opened again.

Exits 4 if there is no such late payment, 5 if it was resolved before.`,
		Example: "  orderclose payments resolve 17 --refunded --yes",
		Args:    oneArg("the ID of a late payment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id <= 0 {
				return Exit(Usage, fmt.Errorf("ID is %q, want a number of orderclose payments late", args[0]))
			}
			how := map[bool]store.LateResolution{false: store.Refunded, true: store.Reopened}[reopened]
			if refunded == reopened {
				return Exit(Usage, errors.New("say what became of the money: --refunded or --reopened"))
			}
			return with(c.open(environ.EnvDSN))(func(s *session) error { return c.resolveLate(cmd.Context(), s.Store, id, how, yes) })
		},
	}
	cmd.Flags().BoolVar(&refunded, "refunded", false, "the customer has the money back")
	cmd.Flags().BoolVar(&reopened, "reopened", false, "the customer gets the goods")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// resolveLate resolves a late payment, or without yes shows it and the command that resolves it.
func (c *common) resolveLate(ctx context.Context, s *store.Store, id int64, how store.LateResolution, yes bool) error {
	p, err := s.LatePayment(ctx, id)
	switch {
	case err != nil:
	case !yes && p.Resolution != "":
		err = fmt.Errorf("%w: %s by %s", store.ErrResolvedBefore, p.Resolution, p.ResolvedBy)
	case yes:
		same := p.PerhapsSame
		p, err = s.ResolveLate(ctx, id, how, operator())
		p.PerhapsSame = same
	}
	switch {
	case errors.Is(err, store.ErrNoLatePayment):
		return Exit(NotFound, err)
	case errors.Is(err, store.ErrResolvedBefore):
		return Exit(Refused, err)
	case err != nil:
		return err
	}
	return c.print(p, func(w io.Writer) {
		printLate(w, []store.LatePayment{p})
		if len(p.PerhapsSame) > 0 {
			fmt.Fprintf(w, "\nThe order has another late payment that is perhaps the same money: %s. One of the two has no payment id.\n"+
				"Look at the provider whether the customer has paid once or twice. If once, resolve both, and give the money back once:\n"+
				"not at all if the other one is resolved (orderclose payments late --all).\n", ids(p.PerhapsSame))
		}
		if !yes {
			fmt.Fprintf(w, "\nwould record that it was %s. To do it:\n  orderclose payments resolve %d --%[1]s --yes%[3]s\n", how, id, c.same)
		}
	})
}

// operator returns who runs the command, as user@host.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return text.OneLine(name+"@"+host, 255)
}
