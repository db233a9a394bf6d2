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

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

type replayFlags struct {
	from, to           string
	orders, categories []string
	partitions         []int
	rate               int
	restart, yes       bool
}

func newReplay(c *common) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --from TIME [--to TIME] [--order ID]... [--category CATEGORY]... [--partition N]... [--yes]",
		Short: "Send a window of the close topic again",
		Long: `Send the records that reached the close topic in a window of time again, so that
their orders are closed if they were not: all of them, or those of some orders,
categories or partitions of the close topic. Closing twice changes nothing: paid and
closed orders stay as they are. The records go to the replay topic and do not delay
orders that become due now.

A time is RFC 3339, or how long ago: 90m, or now. Without --yes the plan is shown and
nothing is sent. If ` + config.EnvDSN + ` is set, the plan says what would become of
the orders. A record without a category has that of its order in the database.

If the command is interrupted, the same command continues it, if its times are those of
the plan. After the end it sends nothing. --restart sends everything again.

Exits 4 if a named order has no record in the window, or if no record of the window,
topics.yaml and no unpaid order has the category, 5 if the category of a record is
not known, 6 if only a part was sent, or if the replay topic refused some records, such
as too large ones: it lists them and sends all others.`,
		Example: "  orderclose replay --from 2h --to 30m\n  orderclose replay --from 2026-11-20T12:00:00Z --to 2026-11-20T12:30:00Z --category virtual --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := f.window(time.Now())
			if err != nil {
				return Exit(Usage, err)
			}
			return with(c.openKafka(cmd.Context(), config.EnvDSN))(func(s *session) error { return c.replay(cmd.Context(), s, w, f) })
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "", "the beginning of the window")
	cmd.Flags().StringVar(&f.to, "to", "now", "the end of the window")
	cmd.Flags().StringArrayVar(&f.orders, "order", nil, "only the records of this order; may be repeated")
	cmd.Flags().StringArrayVar(&f.categories, "category", nil, "only the records of orders of this category; may be repeated")
	cmd.Flags().IntSliceVar(&f.partitions, "partition", nil, "only this partition of the close topic; may be repeated")
	cmd.Flags().IntVar(&f.rate, "rate", ops.ReplayRate, "how many records to send a second at most")
	cmd.Flags().BoolVar(&f.restart, "restart", false, "begin again, whatever an earlier run has sent")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do it")
	return cmd
}

// window checks the flags. It sets only the fields of the window that flags set.
func (f *replayFlags) window(now time.Time) (w ops.ReplayWindow, err error) {
	from, err1 := parseTime("--from", f.from, now)
	to, err2 := parseTime("--to", f.to, now)
	if to.After(now) {
		to = now // later records do not exist yet
	}
	// Whole milliseconds, as the command that the plan prints has them.
	from, to = from.Truncate(time.Millisecond), orderclose.CeilMilli(to)
	errs := []error{ops.CheckWindow(from, to, err1, err2)}
	for _, id := range f.orders {
		if err := orderclose.ValidateID(id); err != nil {
			errs = append(errs, fmt.Errorf("--order: %w", err))
		}
	}
	if slices.Contains(f.categories, "") {
		errs = append(errs, errors.New("--category is empty: name a category"))
	}
	if f.rate < 1 {
		errs = append(errs, fmt.Errorf("--rate is %d, want 1 or more records a second", f.rate))
	}
	return ops.ReplayWindow{From: from, To: to, Orders: f.orders, Categories: f.categories, OnlyPartitions: f.partitions, Restart: f.restart}, errors.Join(errs...)
}

// command returns the command that carries a plan out, or that continues it.
func (f *replayFlags) command(w ops.ReplayWindow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "orderclose replay --from %s --to %s", stamp(w.From), stamp(w.To))
	for _, id := range w.Orders {
		fmt.Fprintf(&b, " --order %s", ops.ShellQuote(id))
	}
	for _, category := range w.Categories {
		fmt.Fprintf(&b, " --category %s", ops.ShellQuote(category))
	}
	for _, partition := range w.OnlyPartitions {
		fmt.Fprintf(&b, " --partition %d", partition)
	}
	if f.rate != ops.ReplayRate {
		fmt.Fprintf(&b, " --rate %d", f.rate)
	}
	return b.String()
}

// replay shows the plan of a replay, or carries it out, with the clients of the session.
func (c *common) replay(ctx context.Context, s *session, w ops.ReplayWindow, f replayFlags) error {
	plan, err := s.pipeline().PlanReplay(ctx, w)
	if errors.Is(err, ops.ErrNoSuchPartition) {
		return Exit(Usage, fmt.Errorf("--partition: %w", err))
	}
	if err != nil {
		return err
	}
	database := s.pipeline().ReplayDatabase()
	command := c.withConfig(f.command(w))
	if !f.yes {
		return c.previewReplay(ctx, s, plan, database, command, f)
	}
	s.logger.Info("replay begins", "from", stamp(w.From), "to", stamp(w.To), "records", plan.Records, "if_interrupted", command+" --yes")
	bar := c.progress("replayed")
	result, err := ops.Replay(ctx, s.Kafka, plan, ops.ReplayOptions{
		Rate: f.rate, Database: database, Progress: func(done int64) { bar.Show(done, plan.Records, "") },
	})
	err = interrupted(ctx, err)
	bar.End()
	err = cmp.Or(err, c.print(result, func(w io.Writer) { printReplayed(w, result) }))
	switch {
	case errors.Is(err, ops.ErrCategoryUnknown):
		return categoryUnknown(err)
	case errors.Is(err, ops.ErrReplayRefused):
		return Exit(Partly, err)
	case err != nil && result.Sent > 0:
		return Exit(Partly, fmt.Errorf("%w; to continue (repeats are harmless): %s --yes", err, command))
	case err != nil:
		return err
	}
	return missingOrders(result.Missing)
}

func (c *common) previewReplay(ctx context.Context, s *session, plan ops.ReplayPlan, database ops.ReplayDatabase, command string, f replayFlags) error {
	bar := c.bar("read")
	var err error
	plan.Preview, err = ops.PreviewReplay(ctx, s.Kafka, plan, database, func(done int64) { bar.Show(done, plan.Records, "") })
	bar.End()
	if errors.Is(err, ops.ErrCategoryUnknown) {
		return categoryUnknown(err)
	}
	if err != nil {
		return err
	}
	if plan.Restart {
		command += " --restart"
	}
	if plan.Preview.Records == 0 && plan.Preview.Unselected > 0 { // closed orders may have other categories than unpaid ones
		if err := c.checkCategories(ctx, s, plan.Categories...); err != nil {
			return err
		}
	}
	return cmp.Or(c.print(plan, func(w io.Writer) { printReplayPlan(w, plan, f.rate, command+" --yes") }),
		exitIf(plan.Preview.NotRead != "", Partly, "the database could not be asked; see above"),
		missingOrders(plan.Preview.Missing))
}

func categoryUnknown(err error) error {
	return Exit(Refused, fmt.Errorf("%w: set %s and map the category, or select by --order or --partition", err, config.EnvDSN))
}

func missingOrders(ids []string) error {
	return exitIf(len(ids) > 0, NotFound, "no record of the window is of %s: orderclose order ID shows when its records reached the close topic",
		oneLines(ids, orderclose.MaxIDBytes, ", "))
}

func printReplayPlan(w io.Writer, p ops.ReplayPlan, rate int, command string) {
	fmt.Fprintf(w, "%s, from %s to %s\n", p.Topic, stamp(p.From), stamp(p.To))
	for _, span := range p.Spans {
		fmt.Fprintf(w, "  partition %d\toffsets %d to %d\t%s\n", span.Partition, span.First, span.End-1, plural(span.Len(), "record"))
	}
	if p.Handled > 0 {
		fmt.Fprintf(w, "an earlier run has handled %s of this window; --restart begins again\n", plural(p.Handled, "record"))
	}
	v := p.Preview
	printAny(w, v.Unselected, "not selected\t%d")
	printAny(w, v.Skipped, "skipped\t%d are replays themselves, or invalid")
	if v.Records == 0 {
		fmt.Fprintln(w, "nothing to send again")
		return
	}
	fmt.Fprintf(w, "would send %s of %s again, to %s, at most %d a second\n", plural(v.Records, "record"), plural(v.Orders, "order"), p.Into, rate)
	printVerdicts(w, v)
	if p.NotKept != "" {
		fmt.Fprintf(w, "the progress is not kept, so an interrupted replay begins again: %s\n", oneLine(p.NotKept, 400))
	}
	fmt.Fprintf(w, "To do it:\n  %s\n", command)
}

// verdictTexts say what becomes of an order that is replayed, by what closing it would return.
var verdictTexts = []struct {
	verdict orderclose.Verdict
	text    string
}{
	{orderclose.Closed, "would close: unpaid and due"},
	{orderclose.AlreadyPaid, "already paid"},
	{orderclose.AlreadyClosed, "already closed or cancelled"},
	{orderclose.Excluded, "excluded by orders.where or orders.not_before"},
	{orderclose.NotDue, "not due: would wait until they are due"},
	{orderclose.NotFound, "not found: would be retried for 7 minutes, and become dead letters"},
	{orderclose.Failed, "without a due time: would be retried for 7 minutes, and become dead letters"},
}

// printVerdicts prints the orders by verdict, those of verdictTexts first.
func printVerdicts(w io.Writer, v *ops.ReplayPreview) {
	if v.Verdicts == nil {
		fmt.Fprintf(w, "the database was not asked about the orders: %s is not set\n", config.EnvDSN)
		return
	}
	left := maps.Clone(v.Verdicts)
	line := func(verdict orderclose.Verdict, text string) {
		if n := left[verdict]; n > 0 {
			fmt.Fprintf(w, "  %d\t%s\n", n, text)
		}
		delete(left, verdict)
	}
	for _, t := range verdictTexts {
		line(t.verdict, t.text)
	}
	for _, verdict := range slices.Sorted(maps.Keys(left)) {
		line(verdict, string(verdict))
	}
	if v.NotRead != "" {
		fmt.Fprintf(w, "the database could not be asked about all orders: %s\n", oneLine(v.NotRead, 400))
	}
}

func printReplayed(w io.Writer, r ops.ReplayResult) {
	printAny(w, r.Handled, "continued after\t%d were handled by an earlier run; --restart begins again")
	fmt.Fprintf(w, "sent again\t%d\n", r.Sent)
	printAny(w, r.Unselected, "not selected\t%d")
	fmt.Fprintf(w, "skipped\t%d were replays themselves, or invalid\n", r.Skipped)
	printAny(w, r.Refused, "refused\t%d")
	for _, refused := range r.Refusals {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", refused.At, oneLine(refused.Key, orderclose.MaxIDBytes), oneLine(refused.Why, 200))
	}
	if r.NotKept != "" {
		fmt.Fprintf(w, "progress not kept\t%s\n", oneLine(r.NotKept, 400))
	}
}
