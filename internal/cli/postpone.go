package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

type postponeFlags struct {
	categories                 []string
	dueBefore                  string
	createdFrom, createdBefore string
	by                         string
	file                       string
	yes                        bool
}

func newPostpone(c *common) *cobra.Command {
	var f postponeFlags
	cmd := &cobra.Command{
		Use:   "postpone (--due-before TIME --by DURATION [--category CATEGORY]... [--created-from TIME] [--created-before TIME] --plan FILE | --plan FILE --yes)",
		Short: "Move the due times of unpaid orders to later",
		Long: `Move the due times of unpaid orders to later, for example because the delay of a
category was too short. The first call writes the orders and their due times to a file,
the plan, and changes nothing. The second one, with --yes, carries the plan out: it
changes the orders that are still unpaid and still have that due time, in pages. If it
is interrupted, the same command continues: no order is moved twice.

Records that are on their way need no change: an order that is not due in the database is
not closed, and its record waits for the new due time.

A time is RFC 3339, or now, or how long ago, such as 90m. --by is whole seconds, such as
20m. No order may be due further ahead than delays.max. --created-from and
--created-before need a column with the time of creation (orders.created), and leave out
orders of which it is not known.

Exits 3 if the orders' tables do not fit the mapping in topics.yaml, 4 if neither
topics.yaml nor an unpaid order has the category, 5 if due times
cannot be changed here or the plan does not fit, 6 if only a part was changed.`,
		Example: "  orderclose postpone --category virtual --due-before 2026-11-20T14:00:00Z --by 20m --plan plan.jsonl\n" +
			"  orderclose postpone --plan plan.jsonl --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(time.Now())
			if err != nil {
				return Exit(Usage, err)
			}
			return with(c.open(config.EnvDSN))(func(s *session) error {
				plan.Database = s.Store.Database()
				return c.postpone(cmd.Context(), s, plan, f)
			})
		},
	}
	cmd.Flags().StringArrayVar(&f.categories, "category", nil, "only the orders of this category; may be repeated")
	cmd.Flags().StringVar(&f.dueBefore, "due-before", "", "only the orders that are due before this time")
	cmd.Flags().StringVar(&f.createdFrom, "created-from", "", "only the orders that were created at this time or later")
	cmd.Flags().StringVar(&f.createdBefore, "created-before", "", "only the orders that were created before this time")
	cmd.Flags().StringVar(&f.by, "by", "", "by how much to move the due times")
	cmd.Flags().StringVar(&f.file, "plan", "", "the file of the plan: written without --yes, carried out with it")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "carry out the plan")
	return cmd
}

// plan checks the flags, and returns the plan that they describe.
func (f *postponeFlags) plan(now time.Time) (p ops.PostponePlan, err error) {
	switch {
	case f.file == "":
		return p, errors.New("--plan is missing: name the file of the plan, such as plan.jsonl")
	case f.yes && (f.dueBefore+f.createdFrom+f.createdBefore+f.by != "" || len(f.categories) > 0):
		return p, errors.New("--yes carries out the plan in --plan: make the plan without --yes, then run orderclose postpone --plan FILE --yes")
	case f.yes:
		return p, nil
	}
	var errs []error
	instant := func(flag, value string, optional bool) time.Time {
		if optional && value == "" {
			return time.Time{}
		}
		at, err := parseTime(flag, value, now)
		errs = append(errs, err)
		return at.UTC().Truncate(time.Millisecond)
	}
	p.Categories, p.DueBefore = f.categories, instant("--due-before", f.dueBefore, false)
	p.CreatedFrom, p.CreatedBefore = instant("--created-from", f.createdFrom, true), instant("--created-before", f.createdBefore, true)
	if f.createdFrom != "" && f.createdBefore != "" && !p.CreatedFrom.Before(p.CreatedBefore) {
		errs = append(errs, errors.New("--created-from is not before --created-before: no order is between them"))
	}
	by, err := parseDuration("--by", f.by, "20m")
	switch {
	case f.by == "":
		err = errors.New("--by is missing: say by how much to move the due times, such as 20m")
	case by%time.Second != 0:
		err = fmt.Errorf("--by is %s, want whole seconds", f.by)
	}
	p.By, errs = config.FormatDuration(by), append(errs, err)
	if slices.Contains(f.categories, "") {
		errs = append(errs, errors.New("--category is empty: name a category"))
	}
	return p, errors.Join(errs...)
}

// postpone writes the plan, or carries it out, with the clients of the session.
func (c *common) postpone(ctx context.Context, s *session, p ops.PostponePlan, f postponeFlags) error {
	where, err := s.pipeline().PostponeWhere(ctx)
	if err != nil {
		return postponeError(findings(err))
	}
	p.Table = where.Table
	if f.yes {
		return c.applyPostpone(ctx, s, p, f.file)
	}
	if err := c.checkCategories(ctx, s, p.Categories...); err != nil {
		return err
	}
	return c.planPostpone(ctx, s, p, f.file)
}

// planPostpone writes the plan's file. It leaves no file after an error.
func (c *common) planPostpone(ctx context.Context, s *session, p ops.PostponePlan, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return Exit(Refused, fmt.Errorf("%s exists: if its plan was carried out in part, a new plan would move orders twice; finish it with %s, or name another file",
			path, c.withConfig(postponeCommand(path))))
	}
	if err != nil {
		return Exit(Usage, fmt.Errorf("--plan: %w", err))
	}
	sum, err := ops.PlanPostpone(ctx, s.Store, p, s.cfg.MaxDelay, file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil || sum.Orders == 0 {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return postponeError(err)
	}
	return c.print(sum, func(w io.Writer) { printPostponePlan(w, sum, path, postponeCommand(path)) })
}

func (c *common) applyPostpone(ctx context.Context, s *session, p ops.PostponePlan, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return Exit(Usage, fmt.Errorf("--plan: %w", err))
	}
	defer func() { _ = file.Close() }()
	bar := c.progress("postponed")
	r, err := ops.ApplyPostpone(ctx, s.Store, file, p, s.cfg.MaxDelay, func(done, total int64) { bar.Show(done, total, "") })
	err = interrupted(ctx, err)
	bar.End()
	if err != nil && r.Postponed+r.Before == 0 {
		return postponeError(fmt.Errorf("%s: %w", path, err))
	}
	if err := cmp.Or(err, c.print(r, func(w io.Writer) { printPostponed(w, r) })); err != nil {
		return Exit(Partly, fmt.Errorf("%w; to continue: %s", err, c.withConfig(postponeCommand(path))))
	}
	return nil
}

// postponeCommand returns the command that carries out the plan in a file.
func postponeCommand(path string) string {
	return "orderclose postpone --plan " + ops.ShellQuote(path) + " --yes"
}

// postponeError gives the reason why due times are not changed its exit code.
func postponeError(err error) error {
	if errors.Is(err, store.ErrNoCategory) {
		return Exit(Refused, fmt.Errorf("--category: %w: map the column, or select by --due-before only", err))
	}
	if errors.Is(err, store.ErrNoCreated) {
		return Exit(Refused, fmt.Errorf("--created-from and --created-before: %w: map the column, or select by --due-before only", err))
	}
	refused := []error{
		ops.ErrClosedElsewhere, store.ErrDueGenerated, store.ErrOutOfReach, ops.ErrBeyondMaxDelay,
		ops.ErrNoPlan, ops.ErrIncompletePlan, ops.ErrOtherDatabase,
	}
	if slices.ContainsFunc(refused, func(r error) bool { return errors.Is(err, r) }) {
		return Exit(Refused, err)
	}
	return err
}

func printPostponePlan(w io.Writer, r ops.PostponeSummary, path, command string) {
	of := ""
	if len(r.Categories) > 0 {
		of = " of category " + oneLines(r.Categories, 40, " or ")
	}
	fmt.Fprintf(w, "%s: %s%s, unpaid and due before %s\n", r.Table, plural(r.Orders, "order"), of, stamp(r.DueBefore))
	if !r.CreatedFrom.IsZero() {
		fmt.Fprintf(w, "created\tat %s or later\n", stamp(r.CreatedFrom))
	}
	if !r.CreatedBefore.IsZero() {
		fmt.Fprintf(w, "created\tbefore %s\n", stamp(r.CreatedBefore))
	}
	printAny(w, r.OtherCategories, "left out\t%d of other categories")
	printAny(w, r.OtherCreation, "left out\t%d that were created at other times, or at a time that is not known")
	if r.Orders == 0 {
		fmt.Fprintln(w, "nothing to postpone; no plan was written")
		return
	}
	fmt.Fprintf(w, "due\tfrom %s to %s; would be %s later\n", stamp(r.FirstDue), stamp(r.LastDue), r.By)
	printAny(w, r.Overdue, "overdue\t%d: a closer or sweep may close them before; those that it closes stay closed")
	fmt.Fprintf(w, "the plan is in %s; nothing was changed. To do it:\n  %s\n", oneLine(path, 200), command)
}

func printPostponed(w io.Writer, r ops.PostponeOutcome) {
	fmt.Fprintf(w, "postponed\t%d of %s, by %s\n", r.Postponed, plural(r.Orders, "order"), r.By)
	printAny(w, r.Before, "postponed before\t%d by an earlier run")
	printAny(w, r.NotOpen, "not open\t%d were paid or closed since the plan was made")
	printAny(w, r.Moved, "moved\t%d have another due time since the plan was made, and keep it")
	printAny(w, r.NotFound, "not found\t%d")
}
