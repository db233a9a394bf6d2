package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/webhook"
)

// statusTimeout bounds the command. A partition that has not answered by then is shown as a
// problem.
const statusTimeout = time.Minute

func newStatus(c *common) *cobra.Command {
	var partitions bool
	cmd := &cobra.Command{
		Use:   "status [--partitions]",
		Short: "Show what waits in each topic, how long overdue it is, and who owns it",
		Long: `Show, for each delay topic and the close topic: how many records
wait (from the commit to the end), when the first of them should leave, and how long
overdue they are. A partition has a line of its own if a record in it is overdue, if it has a problem, or if it has no owner
while the group has members. With --partitions every partition has a line, with the
commit and the owner. No part of the pipeline needs to be running.

Above the table is what is wrong with the pipeline as a whole, the most urgent first, as
the page Now of the web console shows it. Each problem has its section of the runbook and
the first commands of that section. For the problems the command also asks the database and
Redis, if their variables are set. It counts the unpaid orders that are overdue in the
database by more than 5 s, and reads at most a thousand of them. To say what keeps them
open it closes up to five, and rolls back. It tries the writes of a close and rolls them
back, and sets a key beside that of the sweep's lock, which expires. It changes nothing
else.

Below the table are the members of the consumer groups, with their hosts and partitions
as Kafka reports them. A member is stuck if it has overdue records and moves nothing
while others move theirs. While a broker is silent, the answers of others are there
within 5 s, and what it leads is unknown.

Overdue is for the most overdue record, by the clock of this machine. Behind a first
record that is not due, the command reads some of the others: those after each gap in
what was acked, and samples of the rest. Commits follow within 200 ms, so a busy
partition is always a little overdue. Records above the commit may be done already;
they count as waiting until the commit passes them.

Without Kafka, beside orderclose run sweeper, it shows the last compensation, the process that
has the lease of the compensator, and what is overdue in the database.

If a record is overdue by more than 30 s, the command looks again after a second, and
says whether the backlog shrinks.

Exits 3 if orders are late or early, or will be, such as if a record is overdue by more
than 30 s, or more than ten orders are overdue in the database. Otherwise it exits 6 if
something could not be checked. orderclose doctor does the same.`,
		Example: "  orderclose status\n  orderclose status --partitions -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context(), partitions) },
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "show every partition")
	return cmd
}

func (c *common) status(ctx context.Context, partitions bool) error {
	return c.readAny(func(s *session) error {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		facts := s.facts(ctx)
		status, overdue, pauses := health.KafkaCheck.Of(facts), ops.OverdueCheck.Of(facts).Value, ops.PausesCheck.Of(facts)
		if status.Away() && s.Store == nil {
			return Exit(Partly, status.Err)
		}
		v := health.Judge(facts)
		shown := struct {
			backlog.Status
			Verdict health.Verdict         `json:"verdict"`
			Overdue *backlog.OverdueOrders `json:"overdue,omitempty"`
			Pauses  []pausing.Pause        `json:"pauses,omitempty"`
			LastDay *ops.LastDay           `json:"compensations_of_24h,omitempty"`
		}{Status: status.Value, Verdict: v, Pauses: pauses.Value, LastDay: ops.HoursCheck.Of(facts).Value.LastDay(facts.Now)}
		if !overdue.At.IsZero() {
			shown.Overdue = &overdue
		}
		return cmp.Or(c.print(shown, func(w io.Writer) {
			printVerdict(w, v)
			if status.Known() {
				printStatus(w, status.Value, partitions)
			}
			if s.Kafka == nil && s.Store != nil {
				printWithoutKafka(w, ops.HoursCheck.Of(facts))
			}
			if shown.Overdue != nil {
				fmt.Fprintf(w, "\nunpaid orders in the database that are overdue by more than %v: %s\n", ops.OverdueGrace, text.OneLine(shown.Overdue.String(), 600))
			}
			if shown.LastDay != nil {
				fmt.Fprintf(w, "\ncompensations of the last 24 hours: %s\n", shown.LastDay)
			}
			if len(shown.Pauses) > 0 {
				fmt.Fprintln(w)
				printPauses(w, "paused", shown.Pauses)
			}
			if err := pauses.Err; err != nil {
				fmt.Fprintf(w, "\nwhether closing is paused is unknown: %v\n", text.OneLine(err.Error(), 300))
			}
		}), verdictError(v))
	})
}

// printWithoutKafka prints what the database knows of the compensations.
func printWithoutKafka(w io.Writer, hours health.Answer[ops.Hours]) {
	last := "no compensation of the last week has finished"
	if hours.Err != nil {
		last = "when the last compensation finished is unknown: " + text.OneLine(hours.Err.Error(), 300)
	} else if ended := hours.Value.LastFinished().Ended; !ended.IsZero() {
		last = fmt.Sprintf("the last compensation finished %v ago", time.Since(ended).Round(time.Second))
	}
	for _, holder := range hours.Value.Leases {
		last += "; lease of the compensator: " + line(holder)
	}
	fmt.Fprintf(w, "%s; Kafka was not asked: %s is not set\n", last, environ.EnvBrokers)
}

// questions returns those of the verdict about the servers of the session.
func (s *session) questions(ends context.Context) *ops.Questions {
	p := s.pipeline()
	return ops.NewQuestions(ends, statusTimeout, func() ops.Pipeline { return p }, webhook.Check)
}

// answersWithin is how long status and doctor wait for all answers while brokers are silent. Those of the others are there by then.
const answersWithin = 4500 * time.Millisecond

// facts asks all questions.
func (s *session) facts(ctx context.Context) health.Facts {
	q, began := s.questions(ctx), time.Now()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if kafka := ops.Get(waiting, q, health.KafkaCheck); kafka.Away() || len(kafka.Value.Silent) > 0 {
			retry.Sleep(waiting, answersWithin-time.Since(began))
			stop()
		}
	}()
	return q.Facts(waiting)
}

// printVerdict prints each problem with the section of the runbook and the first commands of the section, and a
// blank line. A healed problem has no commands. It prints nothing if all is well.
func printVerdict(w io.Writer, v health.Verdict) {
	for _, p := range v.Problems {
		fmt.Fprintf(w, "%s\t%s\n\t-> orderclose runbook %s\n", strings.ToUpper(string(p.Severity)), text.OneLine(p.Title()+": "+p.Text(), 600), p.Runbook)
		if p.Severity == health.Healed {
			continue
		}
		for _, command := range p.Commands {
			fmt.Fprintf(w, "\t   %s\n", text.OneLine(command, 600))
		}
		if len(p.Commands) == 0 {
			printFirst(w, p.Runbook)
		}
	}
	if len(v.Problems) > 0 {
		fmt.Fprintln(w)
	}
}

// verdictError returns the error of status and doctor for a verdict: Findings if something urgent is known, Partly if a
// part of the state is unknown, and nil if all else can wait until today's work.
func verdictError(v health.Verdict) error {
	code, is := map[health.State]Code{health.ActNow: Findings, health.Unknown: Partly}[v.State]
	if !is {
		return nil
	}
	p := v.Problems[0]
	return Exit(code, fmt.Errorf("%s -> orderclose runbook %s", text.OneLine(p.Title()+": "+p.Text(), 600), p.Runbook))
}

// printStatus prints a line for each topic, and a line for each partition that stands out,
// or for every partition.
func printStatus(w io.Writer, r backlog.Status, all bool) {
	fmt.Fprintf(w, "at %s; waiting is from the commit to the end, overdue is by this machine's clock\n\n",
		text.Stamp(r.At))
	fmt.Fprintln(w, "topic\tpartition\twaiting\thead due\toverdue\tcommitted\towner")
	hidden := 0
	defer printMembers(w, r.Members)
	var notes []string // printed below the table, to keep its columns aligned
	for _, t := range r.Topics {
		printStatusTopic(w, t)
		if t.Problem != "" {
			notes = append(notes, line(fmt.Sprintf("%s unknown: %s", t.Topic, t.Problem)))
		}
		for _, p := range t.Partitions {
			if !all && !standsOut(t, p) {
				hidden++
				continue
			}
			printStatusPartition(w, p)
			if p.Late != nil {
				notes = append(notes, fmt.Sprintf("%s/%d behind its head: offset %d should have left at %s", t.Topic, p.Partition, p.Late.Offset,
					timeOrDash(p.Late.Leaves)))
			}
			if p.Problem != "" {
				notes = append(notes, line(fmt.Sprintf("%s/%d problem: %s", t.Topic, p.Partition, p.Problem)))
			}
		}
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	if hidden > 0 {
		fmt.Fprintf(w, "\n%s not shown, in which nothing is overdue: --partitions shows all\n", text.Plural(hidden, "partition"))
	}
}

func printMembers(w io.Writer, all []backlog.Member) {
	if len(all) > 0 {
		fmt.Fprintln(w, "\nmember\thost\tpartitions\trecords a second\tstate")
	}
	for _, m := range all {
		var has []string
		for _, topic := range slices.Sorted(maps.Keys(m.Partitions)) {
			has = append(has, fmt.Sprintf("%s %d", topic, len(m.Partitions[topic])))
		}
		state := "-"
		if m.Stuck {
			state = "stuck"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%s\n", line(m.Name), line(m.Host), line(strings.Join(has, ", ")), math.Ceil(m.PerSecond), state)
	}
}

// littleOverdue is how overdue a busy partition may be without a problem.
const littleOverdue = time.Second

func standsOut(t backlog.TopicStatus, p backlog.PartitionStatus) bool {
	return p.Problem != "" || p.Overdue > littleOverdue.Seconds() || p.Owner == nil && t.Members > 0
}

func printStatusTopic(w io.Writer, t backlog.TopicStatus) {
	if t.Problem != "" {
		fmt.Fprintf(w, "%s\tunknown\t-\t-\t-\t\t-\n", t.Topic)
		return
	}
	owners := "no members"
	if t.Members > 0 {
		owners = fmt.Sprintf("%s, %s", text.Plural(t.Members, "member"), t.State)
	}
	fmt.Fprintf(w, "%s\tall %d\t%d\t%s\t%s\t\t%s\n", t.Topic, len(t.Partitions), t.Waiting, leaves(t.Head()), overdue(t.Overdue()), owners)
}

func printStatusPartition(w io.Writer, p backlog.PartitionStatus) {
	committed, owner := "-", "none"
	if p.Committed != nil {
		committed = fmt.Sprint(*p.Committed)
	}
	if p.Owner != nil {
		owner = line(backlog.MemberName(p.Owner))
	}
	fmt.Fprintf(w, "\t%d\t%d\t%s\t%s\t%s\t%s\n", p.Partition, p.Waiting, leaves(p.Head), overdue(p.Overdue), committed, owner)
}

// leaves returns when a record should leave its topic; "-" for none.
func leaves(h *backlog.Head) string {
	if h == nil {
		return "-"
	}
	return timeOrDash(h.Leaves)
}

func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return text.Stamp(t)
}

func overdue(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
