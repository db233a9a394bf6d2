package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"orderclose"
	"orderclose/internal/deadletters"
)

func newDLQRedrive(c *common) *cobra.Command {
	var s selection
	var yes bool
	cmd := &cobra.Command{
		Use:   "redrive [PARTITION/OFFSET]... [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--yes]",
		Short: "Send pending dead letters again",
		Long: `Send pending dead letters again, all of them or those that are named by place or
flags, after what made them die was mended. An order that is due goes to the
replay topic, which delays no fresh order; one that is not goes to its bucket; an
event to the topic it was in. It has all its tries before it again. What was cut,
or is no record, is refused: look at it, then discard it.

Without --yes the plan is shown and nothing is sent. Closing twice changes
nothing, and what was sent is marked, so that a second run does nothing.

Exits 4 if a named one is not there, 5 if none can be sent, 6 if some cannot.`,
		Example: "  orderclose dlq redrive --cause not_found\n  orderclose dlq redrive 0/17 0/18 --yes",
		Args:    usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.settle(cmd.Context(), orderclose.Redriven, &s, args, yes)
		},
	}
	s.flags(cmd)
	settleFlags(cmd, &s, &yes)
	return cmd
}

func newDLQDiscard(c *common) *cobra.Command {
	var s selection
	var yes bool
	cmd := &cobra.Command{
		Use:   "discard (PARTITION/OFFSET... | --cause CAUSE | --stage STAGE | --order ID | --since TIME) [--yes]",
		Short: "Put pending dead letters aside: nobody needs them",
		Long: `Put pending dead letters aside: nobody needs them any more, because the sweep has
closed their orders, or they never were any. They stay in the topic and are shown
by dlq ls --all, and count no more.

Without --yes the plan is shown and nothing is changed. Exits 4 if a named one is
not there.`,
		Example: "  orderclose dlq discard 0/17 --yes\n  orderclose dlq discard --cause bad_due --since 24h",
		Args:    usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !s.some(args) {
				return Exit(Usage, errors.New("say which ones: name their PARTITION/OFFSET, or --cause, --stage, --order or --since"))
			}
			return c.settle(cmd.Context(), orderclose.Discarded, &s, args, yes)
		},
	}
	s.flags(cmd)
	settleFlags(cmd, &s, &yes)
	return cmd
}

func settleFlags(cmd *cobra.Command, s *selection, yes *bool) {
	cmd.Flags().StringSliceVar(&s.through, "through", nil, "PARTITION/OFFSET: nothing that came later; a plan prints it")
	cmd.Flags().BoolVar(yes, "yes", false, "do it")
}

// outboxOfEvents is the source of an event that was given up before it came to a
// topic: the table that it stood in.
const outboxOfEvents = "outbox_events"

// settle redrives or discards.
func (c *common) settle(ctx context.Context, how orderclose.Settlement, sel *selection, args []string, yes bool) error {
	f, err := sel.filter(args)
	if err != nil {
		return err
	}
	s, topic, err := c.deadLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	o := deadletters.Options{Filter: f, How: how, Rules: deadletters.Rules{
		Buckets: s.cfg.Buckets, Replay: s.cfg.Topics.Replay,
		AsTheyWere: map[string]string{s.cfg.Topics.Events: s.cfg.Topics.Events, outboxOfEvents: s.cfg.Topics.Events},
	}}
	if !yes {
		plan, err := topic.MakePlan(ctx, o)
		if err != nil {
			return err
		}
		command := commands[how] + sel.again(args, f, plan.Through) + " --yes"
		if err := c.print(plan, func(w io.Writer) { printSettlePlan(w, plan, command) }); err != nil {
			return err
		}
		return judgePlan(plan)
	}
	bar := c.progress("looked after")
	result, err := topic.Run(ctx, o, func(done, total int64) { bar.Show(done, total, "") })
	bar.End()
	if printed := c.print(result, func(w io.Writer) { printSettled(w, result) }); err == nil {
		err = printed
	}
	switch {
	case err != nil && result.Done > 0:
		return Exit(Partly, fmt.Errorf("%w; run the same again, repeats are harmless", err))
	case err != nil:
		return err
	}
	return judgeSettled(result.Plan, result.Done)
}

var commands = map[orderclose.Settlement]string{
	orderclose.Redriven:  "orderclose dlq redrive",
	orderclose.Discarded: "orderclose dlq discard",
}

// judgePlan decides the exit code of a plan: whether carrying it out makes sense.
func judgePlan(p deadletters.Plan) error {
	switch {
	case len(p.Missing) > 0:
		return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v", p.Topic, p.Missing))
	case p.Refused > 0 && p.Doable() == 0:
		return judgeSettled(p, 0)
	}
	return nil
}

// judgeSettled decides the exit code of what was done.
func judgeSettled(p deadletters.Plan, done int) error {
	switch {
	case len(p.Missing) > 0 && done > 0:
		return Exit(Partly, fmt.Errorf("%s has no dead letter at %v", p.Topic, p.Missing))
	case len(p.Missing) > 0:
		return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v", p.Topic, p.Missing))
	case p.Refused > 0 && done > 0:
		return Exit(Partly, fmt.Errorf("%d cannot be sent again; look at them with orderclose dlq show, then orderclose dlq discard", p.Refused))
	case p.Refused > 0:
		return Exit(Refused, fmt.Errorf("none of %d can be sent again; look at them with orderclose dlq show, then orderclose dlq discard", p.Refused))
	}
	return nil
}

func printSettlePlan(w io.Writer, p deadletters.Plan, command string) {
	fmt.Fprintf(w, "%s: %s\n", p.Topic, pendingLine(p.ByCause))
	printRest(w, p, "would go to")
	switch n := p.Doable(); {
	case n == 0:
		fmt.Fprintln(w, "there is nothing to do")
		return
	case p.How == orderclose.Redriven:
		fmt.Fprintf(w, "would send %d again. To do it:\n", n)
	default:
		fmt.Fprintf(w, "would put %d aside. To do it:\n", n)
	}
	fmt.Fprintf(w, "  %s\n", command)
}

func printSettled(w io.Writer, r deadletters.Result) {
	printRest(w, r.Plan, "went to")
	fmt.Fprintf(w, "%s\t%d\n", r.How, r.Done)
	if r.Refused > 0 {
		fmt.Fprintf(w, "refused\t%d\n", r.Refused)
	}
}

func printRest(w io.Writer, p deadletters.Plan, verb string) {
	for _, topic := range slices.Sorted(maps.Keys(p.To)) {
		fmt.Fprintf(w, "  %d\t%s %s\n", p.To[topic], verb, topic)
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(w, "  %v\tcannot be sent again: %s\t%s\n", r.At, oneLine(r.Key, 40), oneLine(r.Why, 160))
	}
	if more := p.Refused - len(p.Refusals); more > 0 {
		fmt.Fprintf(w, "  and %d more that cannot\n", more)
	}
	for _, at := range p.Settled {
		fmt.Fprintf(w, "  %v\twas redriven or discarded before\n", at)
	}
	for _, at := range p.Missing {
		fmt.Fprintf(w, "  %v\tis no dead letter\n", at)
	}
}
