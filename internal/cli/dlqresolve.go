package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/text"
)

func newDLQRedrive(c *common) *cobra.Command {
	return newResolve(c, deadletters.Redriven, &cobra.Command{
		Use:   "redrive [PARTITION/OFFSET]... [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--yes]",
		Short: "Send pending dead letters again",
		Long: `Send pending dead letters again, after the cause was fixed: all of them, or those
that are selected by position or flags. An order goes to its bucket, from
which a relay takes it to the closers, at once if it is due. A redriven order has its
full number of attempts again. An event is refused: orderclose events again writes it
again, from the database. A record that was cut, or is invalid, is refused too: look at
it, then discard it.

Without --yes the plan is shown and nothing is sent. Closing twice changes nothing. A
dead letter that was sent is marked, so that a second run does nothing.

Exits 4 if a named one does not exist, 5 if none can be sent, 6 if some cannot.`,
		Example: "  orderclose dlq redrive --cause not_found\n  orderclose dlq redrive 0/17 0/18 --yes",
	})
}

func newDLQDiscard(c *common) *cobra.Command {
	return newResolve(c, deadletters.Discarded, &cobra.Command{
		Use:   "discard (PARTITION/OFFSET... | --cause CAUSE | --stage STAGE | --order ID | --since TIME) [--yes]",
		Short: "Discard pending dead letters that are not needed",
		Long: `Discard pending dead letters that are not needed: the sweep has closed their orders,
or they were never records of orders. They stay in the topic, and dlq ls --all shows
them, but they no longer count as pending.

Without --yes the plan is shown and nothing is changed. Exits 4 if a named one does
not exist.`,
		Example: "  orderclose dlq discard 0/17 --yes\n  orderclose dlq discard --cause bad_due --since 24h",
	})
}

// newResolve adds to a command of redrive or discard its flags, and what it runs.
func newResolve(c *common, how deadletters.ResolutionKind, cmd *cobra.Command) *cobra.Command {
	var s selection
	var yes bool
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := s.filter(args)
		if err == nil && how == deadletters.Discarded && !f.Selects() {
			err = Exit(Usage, errors.New("select dead letters: name their PARTITION/OFFSET, or use --cause, --stage, --order or --since"))
		}
		if err != nil {
			return err
		}
		return c.withDeadLetters(cmd.Context(), func(opened *session, topic *deadletters.Topic) error {
			o := deadletters.Options{Filter: f, How: how, Rules: opened.pipeline().RedriveRules()}
			if yes {
				return c.resolve(cmd.Context(), topic, o)
			}
			return c.planResolve(cmd.Context(), topic, o, func(p deadletters.Plan) string { return cmd.CommandPath() + s.arguments(args, f, p.Through) + " --yes" })
		})
	}
	s.flags(cmd)
	cmd.Flags().StringSliceVar(&s.through, "through", nil, "PARTITION/OFFSET of the last dead letter to handle; a plan prints it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (c *common) planResolve(ctx context.Context, topic *deadletters.Topic, o deadletters.Options, command func(deadletters.Plan) string) error {
	plan, err := topic.MakePlan(ctx, o)
	if err != nil {
		return err
	}
	err = resolvedError(plan, 0)
	if len(plan.Missing) == 0 && plan.Doable() > 0 {
		err = nil // some can be sent: --yes says which cannot
	}
	return cmp.Or(c.print(plan, func(w io.Writer) { printResolvePlan(w, plan, command(plan)+c.same) }), err)
}

func (c *common) resolve(ctx context.Context, topic *deadletters.Topic, o deadletters.Options) error {
	result, err := topic.Run(ctx, o, c.progress("handled").Show)
	err = cmp.Or(err, c.print(result, func(w io.Writer) { printResolved(w, result) }))
	return cmp.Or(exitIf(err != nil && result.Done > 0, Partly, "%w; run the same again, repeats are harmless", err), err,
		resolvedError(result.Plan, result.Done))
}

// resolvedError returns an error with the exit code of a finished redrive or discard.
func resolvedError(p deadletters.Plan, done int) error {
	missing := NotFound
	if done > 0 {
		missing = Partly
	}
	return cmp.Or(exitIf(len(p.Missing) > 0, missing, "%s has no dead letter at %v", p.Topic, p.Missing),
		exitIf(p.Later > 0 && done > 0, Partly, "%d further dead letters are pending: run the same again", p.Later),
		exitIf(p.Refused > 0 && done > 0, Partly, "%d cannot be sent again; look at them with orderclose dlq show, then orderclose dlq discard", p.Refused),
		exitIf(p.Refused > 0, Refused, "none of %d can be sent again; look at them with orderclose dlq show, then orderclose dlq discard", p.Refused))
}

func printResolvePlan(w io.Writer, p deadletters.Plan, command string) {
	fmt.Fprintf(w, "%s: %s\n", line(p.Topic), pendingLine(p.ByCause))
	printRest(w, p, "would go to")
	switch n := p.Doable(); {
	case n == 0:
		fmt.Fprintln(w, "nothing to do")
		return
	case p.How == deadletters.Redriven:
		fmt.Fprintf(w, "would send %d again. To do it:\n", n)
	default:
		fmt.Fprintf(w, "would discard %d. To do it:\n", n)
	}
	fmt.Fprintf(w, "  %s\n", command)
	text.PrintAny(w, p.Later, "%d further ones are for the same command when it has ended")
}

func printResolved(w io.Writer, r deadletters.Result) {
	printRest(w, r.Plan, "went to")
	fmt.Fprintf(w, "%s\t%d\n", line(string(r.How)), r.Done)
	text.PrintAny(w, r.Refused, "refused\t%d")
}

func printRest(w io.Writer, p deadletters.Plan, verb string) {
	for _, topic := range slices.Sorted(maps.Keys(p.To)) {
		fmt.Fprintf(w, "  %d\t%s %s\n", p.To[topic], verb, line(topic))
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(w, "  %v\tcannot be sent again: %s\t%s\n", r.At, text.OneLine(r.Key, 40), text.OneLine(r.Why, 160))
	}
	text.PrintAny(w, p.Refused-len(p.Refusals), "  and %d more cannot be sent again")
	for _, at := range p.Settled {
		fmt.Fprintf(w, "  %v\twas redriven or discarded before\n", at)
	}
	for _, at := range p.Missing {
		fmt.Fprintf(w, "  %v\tis not a dead letter\n", at)
	}
}

// selection are the flags that select dead letters.
type selection struct {
	deadletters.Filter // of which filter sets Since, Positions and Through
	since              string
	through            []string
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.Cause, "cause", "", "only those with this cause")
	f.StringVar(&s.Stage, "stage", "", "only those written by this stage")
	f.StringVar(&s.Order, "order", "", "only those of this order")
	f.StringVar(&s.since, "since", "", "only those appended then or later: a time, or how long ago, such as 2h")
}

func (s *selection) filter(args []string) (deadletters.Filter, error) {
	f := deadletters.Filter{Cause: s.Cause, Stage: s.Stage, Order: s.Order}
	var errs []error
	if s.since != "" {
		var err error
		f.Since, err = parseTime("--since", s.since, time.Now())
		errs = append(errs, err)
	}
	for _, arg := range args {
		at, err := deadletters.ParsePartitionOffset(arg)
		f.Positions = append(f.Positions, at)
		errs = append(errs, err)
	}
	for _, through := range s.through {
		at, err := deadletters.ParsePartitionOffset(through)
		if err != nil {
			errs = append(errs, fmt.Errorf("--through: %w", err))
		}
		f.Through = append(f.Through, at)
	}
	if err := errors.Join(errs...); err != nil {
		return f, Exit(Usage, err)
	}
	return f, nil
}

// arguments returns the flags and positions for a command that a person copies.
func (s *selection) arguments(args []string, f deadletters.Filter, through []deadletters.Position) string {
	var b strings.Builder
	for _, flag := range []struct{ name, value string }{{"cause", s.Cause}, {"stage", s.Stage}, {"order", s.Order}} {
		if flag.value != "" {
			fmt.Fprintf(&b, " --%s %s", flag.name, text.ShellQuote(flag.value))
		}
	}
	if s.since != "" {
		fmt.Fprintf(&b, " --since %s", text.Stamp(f.Since))
	}
	for _, at := range through {
		fmt.Fprintf(&b, " --through %v", at)
	}
	for _, arg := range args {
		fmt.Fprintf(&b, " %s", arg)
	}
	return b.String()
}
