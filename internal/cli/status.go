package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"orderclose/internal/config"
	"orderclose/internal/status"
)

// statusTimeout bounds looking at all partitions; what has not answered by then
// is shown as a problem.
const statusTimeout = time.Minute

func newStatus(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what waits in each partition, how long overdue it is, and whose it is",
		Long: `Show, for each partition of the delay topics and of the close topic: how many
records wait (from the commit to the end), how many of them the relay holds in its
window, when the first of them is to leave, how long overdue it is, the commit, and
which process owns the partition. Only Kafka is asked, and nothing is changed; no
part needs to be running.

The window is what the relay has read ahead into its memory because it may leave
soon. It is told from outside, by append times: a relay that is over its memory
holds less, and a fetch may have brought it some more.

Overdue is by this machine's clock. Commits follow within 200 ms, so a busy
partition is always a little overdue. Records above the commit may be done
already; they count as waiting until the commit passes them.

Exits 3 if a head is overdue by more than 30 s, and 6 if something could not be
looked at.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context()) },
	}
}

func (c *common) status(ctx context.Context) error {
	s, err := c.open(config.EnvBrokers)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := s.Kafka.Ping(ctx); err != nil {
		return err
	}
	r := status.Look(ctx, s.Kafka, places(s.cfg), time.Now)
	if err := c.print(r, func(w io.Writer) { printStatus(w, r) }); err != nil {
		return err
	}
	return judgeStatus(r)
}

// places are the topics that records wait in, in the order of their way.
func places(cfg *config.Config) []status.Place {
	var all []status.Place
	for i, b := range cfg.Buckets {
		all = append(all, status.Place{Topic: b.Topic, Group: cfg.RelayGroup(b), Length: b.Length, Whole: i == 0})
	}
	return append(all, status.Place{Topic: cfg.Topics.Close, Group: cfg.CloserGroup()},
		status.Place{Topic: cfg.Topics.Replay, Group: cfg.ReplayGroup()})
}

func judgeStatus(r status.Report) error {
	if worst, found := r.Worst(status.OverdueLimit); found {
		return Exit(Findings, fmt.Errorf("%s overdue by more than %v; the worst, %s/%d at offset %d, by %s: %s",
			heads(worst.Count), status.OverdueLimit, worst.Topic.Topic, worst.Partition.Partition, worst.Partition.Head.Offset,
			overdue(worst.Partition.Overdue), worst.Next()))
	}
	if n := r.Problems(); n > 0 {
		return Exit(Partly, fmt.Errorf("%d topics or partitions have a problem, shown with them; orderclose topics check says whether the topics are as they should be", n))
	}
	return nil
}

func heads(n int) string {
	if n == 1 {
		return "1 partition is"
	}
	return fmt.Sprintf("%d partitions are", n)
}

func printStatus(w io.Writer, r status.Report) {
	fmt.Fprintf(w, "at %s; waiting is from the commit to the end, window is how much of it the relay holds in memory, overdue is by this machine's clock\n\n", stamp(r.At))
	fmt.Fprintln(w, "topic\tpartition\twaiting\twindow\thead due\toverdue\tcommitted\towner")
	for _, t := range r.Topics {
		printStatusTopic(w, t)
		for _, p := range t.Partitions {
			printStatusPartition(w, p)
		}
	}
}

// printStatusTopic prints the line that sums a topic up.
func printStatusTopic(w io.Writer, t status.Topic) {
	if t.Problem != "" {
		fmt.Fprintf(w, "%s\tnot seen: %s\n", t.Topic, t.Problem)
		return
	}
	var most float64
	var first time.Time
	for _, p := range t.Partitions {
		most = max(most, p.Overdue)
		if p.Head != nil && (first.IsZero() || p.Head.Leaves.Before(first)) {
			first = p.Head.Leaves
		}
	}
	owners := "nobody in the group"
	if t.Members > 0 {
		owners = fmt.Sprintf("%d in the group, %s", t.Members, t.State)
	}
	fmt.Fprintf(w, "%s\tall\t%d\t%d\t%s\t%s\t\t%s\n", t.Topic, t.Waiting, t.Window, leaving(first), overdue(most), owners)
}

func printStatusPartition(w io.Writer, p status.Partition) {
	var head time.Time
	if p.Head != nil {
		head = p.Head.Leaves
	}
	committed, owner := "-", "nobody"
	if p.Committed != nil {
		committed = fmt.Sprint(*p.Committed)
	}
	if p.Owner != nil {
		owner = status.Name(p.Owner)
	}
	fmt.Fprintf(w, "\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", p.Partition, p.Waiting, p.Window, leaving(head), overdue(p.Overdue), committed, owner)
	if p.Problem != "" {
		fmt.Fprintf(w, "\t%d\tproblem: %s\n", p.Partition, p.Problem)
	}
}

func leaving(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return stamp(t)
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
