package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/deadletters"
)

func newDLQ(c *common) *cobra.Command {
	dlq := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, send them again, or put them aside",
		Long: `Look at dead letters, send them again, or put them aside.

A dead letter is pending until it was redriven or discarded; a mark in the
dead-letter topic itself says which. Nothing is ever deleted: retention does that
after 90 days.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	dlq.AddCommand(newDLQList(c), newDLQShow(c), newDLQRedrive(c), newDLQDiscard(c))
	return dlq
}

// selection are the flags that say which dead letters are meant.
type selection struct {
	cause, stage, order, since string
	through                    []string
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.cause, "cause", "", "only those of this cause")
	f.StringVar(&s.stage, "stage", "", "only those that this stage gave up")
	f.StringVar(&s.order, "order", "", "only those of this order")
	f.StringVar(&s.since, "since", "", "only those that came then or later: a time, or how long ago, such as 2h")
}

// some says whether anything restricts what is meant.
func (s *selection) some(args []string) bool {
	return len(args) > 0 || s.cause != "" || s.stage != "" || s.order != "" || s.since != ""
}

// filter reads flags and places.
func (s *selection) filter(args []string) (deadletters.Filter, error) {
	f := deadletters.Filter{Cause: s.cause, Stage: s.stage, Order: s.order}
	var errs []error
	if s.since != "" {
		var err error
		f.Since, err = moment("--since", s.since, time.Now())
		errs = append(errs, err)
	}
	for _, arg := range args {
		at, err := deadletters.ParsePlace(arg)
		f.Places = append(f.Places, at)
		errs = append(errs, err)
	}
	for _, through := range s.through {
		at, err := deadletters.ParsePlace(through)
		if err != nil {
			errs = append(errs, fmt.Errorf("--through: %w", err))
			continue
		}
		if f.Through == nil {
			f.Through = map[int]int64{}
		}
		f.Through[at.Partition] = at.Offset
	}
	if err := errors.Join(errs...); err != nil {
		return f, Exit(Usage, err)
	}
	return f, nil
}

// again writes the flags and places, for a command that a person is to copy.
func (s *selection) again(args []string, f deadletters.Filter, through []deadletters.Place) string {
	var b strings.Builder
	for _, flag := range []struct{ name, value string }{{"cause", s.cause}, {"stage", s.stage}, {"order", s.order}} {
		if flag.value != "" {
			fmt.Fprintf(&b, " --%s %s", flag.name, quoted(flag.value))
		}
	}
	if s.since != "" {
		fmt.Fprintf(&b, " --since %s", stamp(f.Since))
	}
	for _, at := range through {
		fmt.Fprintf(&b, " --through %v", at)
	}
	for _, arg := range args {
		fmt.Fprintf(&b, " %s", arg)
	}
	return b.String()
}

// quoted writes a value so that a shell reads it back.
func quoted(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_./:@+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// deadLetters opens the topic. Close the session.
func (c *common) deadLetters() (*session, *deadletters.Topic, error) {
	s, err := c.open(config.EnvBrokers)
	if err != nil {
		return nil, nil, err
	}
	bar := c.progress("read")
	return s, &deadletters.Topic{
		Log: s.Kafka, Name: s.cfg.Topics.DeadLetter,
		Progress: func(done, total int64) {
			if total > 10_000 { // else it is there at once
				bar.Show(done, total, "")
			}
			if done == total && total > 10_000 {
				bar.End()
			}
		},
	}, nil
}

func newDLQList(c *common) *cobra.Command {
	var s selection
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--all] [--limit N]",
		Short:   "List the pending dead letters, oldest first",
		Example: "  orderclose dlq ls --cause not_found --since 2h",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := s.filter(nil)
			if err == nil && limit < 0 {
				err = Exit(Usage, fmt.Errorf("--limit is %d, want 0, for all, or more", limit))
			}
			if err != nil {
				return err
			}
			return c.dlqList(cmd.Context(), f, all, limit)
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also those that were redriven or discarded")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many to list; 0: all")
	return cmd
}

// listed is what dlq ls prints.
type listed struct {
	Topic   string               `json:"topic"`
	Pending map[string]int       `json:"pending"` // of the filter, by cause
	Letters []deadletters.Letter `json:"letters"`
	More    bool                 `json:"more"` // there are more than the limit
}

func (c *common) dlqList(ctx context.Context, f deadletters.Filter, all bool, limit int) error {
	s, topic, err := c.deadLetters()
	if err != nil {
		return err
	}
	defer s.Close()
	most := limit
	if limit > 0 {
		most++ // to see whether there are more
	}
	letters, index, err := topic.List(ctx, f, all, most)
	if err != nil {
		return err
	}
	l := listed{Topic: topic.Name, Pending: index.Pending(), Letters: append([]deadletters.Letter{}, letters...)}
	if limit > 0 && len(letters) > limit {
		l.Letters, l.More = l.Letters[:limit], true
	}
	return c.print(l, func(w io.Writer) { printLetters(w, l) })
}

func printLetters(w io.Writer, l listed) {
	if len(l.Letters) > 0 {
		fmt.Fprintln(w, "at\tcame\tcause\tstage\torder\tfrom\tdetail")
	}
	for _, d := range l.Letters {
		cause := d.Cause
		if d.Settle != "" {
			cause += ", " + string(d.Settle)
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\t%s\t%s\n", d.At, stamp(d.Buried), cause, d.Stage, oneLine(d.Key, 40), from(d.Source), oneLine(d.Detail, 80))
	}
	fmt.Fprintln(w, pendingLine(l.Pending))
	if l.More {
		fmt.Fprintf(w, "only the first %d are shown; --limit 0 shows all\n", len(l.Letters))
	}
}

// pendingLine says how many are pending, in words.
func pendingLine(counts map[string]int) string {
	total := 0
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[cause]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, named(cause)))
		}
	}
	if total == 0 {
		return "none is pending"
	}
	return fmt.Sprintf("%d pending: %s", total, strings.Join(parts, ", "))
}

func named(cause string) string {
	if cause == "" {
		return "without a cause"
	}
	return cause
}

func from(s deadletters.Source) string {
	return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
}

// oneLine cuts a text that somebody else wrote to n letters, and shows what would
// move the cursor as what it is.
func oneLine(s string, n int) string {
	quoted := fmt.Sprintf("%q", s)
	shown := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if runes := []rune(shown); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return shown
}

func newDLQShow(c *common) *cobra.Command {
	return &cobra.Command{
		Use:     "show PARTITION/OFFSET",
		Short:   "Show all there is of one dead letter; exits 4 if it is not there",
		Example: "  orderclose dlq show 0/17",
		Args:    oneArg("PARTITION/OFFSET as dlq ls shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := deadletters.ParsePlace(args[0])
			if err != nil {
				return Exit(Usage, err)
			}
			return c.dlqShow(cmd.Context(), at)
		},
	}
}

// shown is a dead letter with its record.
type shown struct {
	deadletters.Letter
	Headers []shownHeader `json:"headers"`
	// Value is the record's: as it is if it is JSON, else as text, or in Base64 if it
	// is none.
	Value  any    `json:"value,omitempty"`
	Base64 []byte `json:"value_base64,omitempty"`
	Order  string `json:"order_problem,omitempty"` // why it is no record of an order
}

type shownHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (c *common) dlqShow(ctx context.Context, at deadletters.Place) error {
	s, topic, err := c.deadLetters()
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := topic.Find(ctx, at)
	if err != nil {
		return err
	}
	if l == nil {
		return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v; orderclose dlq ls --all lists what is there", topic.Name, at))
	}
	d := show(*l)
	return c.print(d, func(w io.Writer) { printLetter(w, d) })
}

func show(l deadletters.Letter) shown {
	d := shown{Letter: l, Headers: []shownHeader{}}
	for _, h := range l.Record.Headers {
		d.Headers = append(d.Headers, shownHeader{h.Key, string(h.Value)})
	}
	switch value := l.Record.Value; {
	case json.Valid(value):
		d.Value = json.RawMessage(value)
	case utf8.Valid(value):
		d.Value = string(value)
	default:
		d.Base64 = value
	}
	if _, err := l.Record.Decode(); err != nil {
		d.Order = err.Error()
	}
	return d
}

func printLetter(w io.Writer, d shown) {
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	state := "pending"
	if d.Settle != "" {
		state = string(d.Settle)
	}
	row("at", d.At.String())
	row("state", state)
	row("came", stamp(d.Buried))
	row("cause", named(d.Cause))
	row("detail", oneLine(d.Detail, orderclose.MaxDeadHeader))
	row("given up by", d.Stage)
	row("from", from(d.Source))
	row("key", oneLine(d.Key, orderclose.MaxDeadKey))
	if d.Order != "" {
		row("as an order", oneLine(d.Order, orderclose.MaxDeadHeader))
	}
	for _, h := range d.Headers {
		row("header "+oneLine(h.Key, 40), oneLine(h.Value, orderclose.MaxDeadHeader))
	}
	if len(d.Record.Value) > 0 {
		row("value", oneLine(string(d.Record.Value), orderclose.MaxDeadValue))
	}
}

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
	s, topic, err := c.deadLetters()
	if err != nil {
		return err
	}
	defer s.Close()
	o := deadletters.Options{Filter: f, How: how, Rules: deadletters.Rules{
		Buckets: s.cfg.Buckets, Replay: s.cfg.Topics.Replay, MaxDelay: s.cfg.MaxDelay,
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
