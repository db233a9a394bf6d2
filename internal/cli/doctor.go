package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"orderclose/internal/app"
	"orderclose/internal/config"
	"orderclose/internal/deadletters"
	"orderclose/internal/kafka"
	"orderclose/internal/store"
)

const (
	// doctorTimeout bounds each check but that of the stock, which takes as long as
	// there are orders.
	doctorTimeout = 15 * time.Second
	// clocksApart is how far clocks may be apart before it is worth a person's time.
	clocksApart = 250 * time.Millisecond
)

func newDoctor(c *common) *cobra.Command {
	var stock bool
	cmd := &cobra.Command{
		Use:   "doctor [--stock]",
		Short: "Check servers, clocks, schema, topics and dead letters; or the stock, row by row",
		Long: `Check that the servers that are set answer, how far the clocks are apart, that
schema and topics are as they should be, and that no dead letter is pending.

With --stock check the stock instead: what each SKU has reserved must be what unpaid
and paid orders hold, and each closed, cancelled or shipped order must have moved
its stock just once, with a receipt if it was closed. It reads every order of the
reference schema once, page by page, as they are at one moment, and locks nothing.

Nothing is mended: each finding says what a person can do. Exits 3 with findings, and 5
if the stock of tables of your own is asked for.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stock {
				return c.doctorStock(cmd.Context())
			}
			return c.doctor(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&stock, "stock", false, "check the stock instead")
	return cmd
}

// checkup is the result of one check.
type checkup struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Skipped says that it was not made.
	Skipped bool   `json:"skipped,omitempty"`
	What    string `json:"what"`
	Mend    string `json:"mend,omitempty"`
}

func fine(check, format string, args ...any) checkup {
	return checkup{Check: check, OK: true, What: fmt.Sprintf(format, args...)}
}

func finding(check, what, mend string) checkup { return checkup{Check: check, What: what, Mend: mend} }

func skipped(check, why string) checkup { return checkup{Check: check, Skipped: true, What: why} }

// doctor makes every check that it can.
func (c *common) doctor(ctx context.Context) error {
	s, err := c.openSome(config.EnvBrokers, config.EnvDSN)
	if err != nil {
		return err
	}
	defer s.Close()
	all, kafkaOffset, told := s.checkKafka(ctx)
	more, databaseOffset, toldToo := s.checkDatabase(ctx)
	all = append(all, more...)
	if told && toldToo {
		all = append(all, judgeClock("clocks of Kafka and database", databaseOffset-kafkaOffset))
	}
	all = append(all, s.checkRedis(ctx))
	if err := c.print(struct {
		Checks []checkup `json:"checks"`
	}{all}, func(w io.Writer) { printCheckups(w, all) }); err != nil {
		return err
	}
	return judgeCheckups(all)
}

func printCheckups(w io.Writer, all []checkup) {
	for _, k := range all {
		state := "ok"
		switch {
		case k.Skipped:
			state = "-"
		case !k.OK:
			state = "FOUND"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", state, k.Check, oneLine(k.What, 400))
		if k.Mend != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", k.Mend)
		}
	}
}

func judgeCheckups(all []checkup) error {
	found := 0
	for _, k := range all {
		if !k.OK && !k.Skipped {
			found++
		}
	}
	if found > 0 {
		return Exit(Findings, fmt.Errorf("%d findings", found))
	}
	return nil
}

// within gives a check its time.
func within(ctx context.Context, check func(ctx context.Context) checkup) checkup {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	return check(ctx)
}

// checkKafka checks what Kafka knows, and measures its clock's offset, if it can be
// told.
func (s *session) checkKafka(ctx context.Context) (all []checkup, offset time.Duration, told bool) {
	if s.Kafka == nil {
		return []checkup{skipped("kafka", config.EnvBrokers+" is not set")}, 0, false
	}
	ping := within(ctx, func(ctx context.Context) checkup {
		if err := s.Kafka.Ping(ctx); err != nil {
			return finding("kafka", err.Error(), "see the runbook, Kafka is down")
		}
		return fine("kafka", "%s answers", strings.Join(s.servers.Brokers, ","))
	})
	if !ping.OK {
		return []checkup{ping}, 0, false
	}
	all = append(all, ping, within(ctx, s.checkTopics), within(ctx, s.checkDeadLetters))
	return append(all, within(ctx, func(ctx context.Context) checkup {
		const check = "clock of Kafka"
		var err error
		offset, told, err = kafka.NewBrokerClock(nil).Measure(ctx, s.Kafka, s.cfg.Topics.Control)
		switch {
		case err != nil:
			return finding(check, "it could not be asked: "+err.Error(), "relays ask the same way, by a record to the control topic: mend the topic, or the access to it")
		case !told:
			return skipped(check, "no answer was quick enough to tell, or the control topic is not set to LogAppendTime")
		}
		return judgeClock(check, offset)
	})), offset, told
}

func judgeClock(check string, offset time.Duration) checkup {
	if offset.Abs() > clocksApart {
		return finding(check, fmt.Sprintf("%v apart", offset.Round(time.Millisecond)), "mend the time synchronisation; nothing closes early by it, but orders may be late")
	}
	return fine(check, "%v apart", offset.Round(time.Millisecond))
}

func (s *session) checkTopics(ctx context.Context) checkup {
	const check = "topics"
	specs := app.TopicSpecs(s.cfg)
	found, unseen, err := s.Kafka.CheckSeen(ctx, specs)
	switch {
	case err != nil:
		return finding(check, "they could not be looked at: "+err.Error(), "orderclose topics check")
	case len(found) > 0:
		return finding(check, fmt.Sprintf("%d differences, such as: %s %s", len(found), found[0].Topic, found[0].What), "orderclose topics check, then orderclose topics apply")
	case len(unseen) > 0:
		return skipped(check, "not all of them can be looked at: "+errors.Join(unseen...).Error())
	}
	return fine(check, "all %d are as they should be", len(specs))
}

func (s *session) checkDeadLetters(ctx context.Context) checkup {
	const check = "dead letters"
	topic := deadletters.Topic{Log: s.Kafka, Name: s.cfg.Topics.DeadLetter}
	spans, err := topic.Snapshot(ctx, deadletters.Filter{})
	var index *deadletters.Index
	if err == nil {
		index, err = topic.Index(ctx, spans, deadletters.Filter{})
	}
	if err != nil {
		return finding(check, "they could not be counted: "+err.Error(), "mend the topic, or the access to it; then orderclose dlq ls")
	}
	for _, n := range index.Pending() {
		if n > 0 {
			return finding(check, pendingLine(index.Pending()), "orderclose dlq ls; the runbook says what to do for each cause")
		}
	}
	return fine(check, "none is pending")
}

// checkDatabase checks the database, and measures its clock's offset.
func (s *session) checkDatabase(ctx context.Context) (all []checkup, offset time.Duration, told bool) {
	if s.Store == nil {
		return []checkup{skipped("database", config.EnvDSN+" is not set")}, 0, false
	}
	ping := within(ctx, func(ctx context.Context) checkup {
		if err := s.Store.Ping(ctx); err != nil {
			return finding("database", err.Error(), "see the runbook, The database is down or slow")
		}
		return fine("database", "it answers, and its session keeps UTC")
	})
	if !ping.OK {
		return []checkup{ping}, 0, false
	}
	return append(all, ping, within(ctx, func(ctx context.Context) checkup {
		err := s.Store.Migrated(ctx)
		if wrong := (*store.SchemaError)(nil); errors.As(err, &wrong) {
			return finding("schema", err.Error(), "orderclose migrate, with the newest version of this program")
		} else if err != nil {
			return finding("schema", err.Error(), "see that the user may read the table orderclose_schema")
		}
		return fine("schema", "it is the one that this program wants")
	}), within(ctx, func(ctx context.Context) checkup {
		const check = "tables of orders"
		if err := s.Store.CheckMapping(ctx); err != nil {
			return finding(check, err.Error(), "docs/mapping.md has every key; of the reference schema nothing may be changed by hand")
		}
		return fine(check, "they fit")
	}), within(ctx, func(ctx context.Context) checkup {
		const check = "clock of the database"
		var err error
		if offset, err = databaseOffset(ctx, s.Store.Now); err != nil {
			return finding(check, err.Error(), "see the runbook, The database is down or slow")
		}
		told = true
		return judgeClock(check, offset)
	})), offset, told
}

// databaseOffset is how far a clock is ahead of this machine's, at least, as the
// quickest of three answers tells.
func databaseOffset(ctx context.Context, now func(context.Context) (time.Time, error)) (offset time.Duration, err error) {
	best := time.Duration(-1)
	for range 3 {
		sent := time.Now()
		at, err := now(ctx)
		answered := time.Now()
		if err != nil {
			return 0, err
		}
		if trip := answered.Sub(sent); best < 0 || trip < best {
			best, offset = trip, apart(sent, answered, at)
		}
	}
	return offset, nil
}

// apart is the least offset of a clock that showed at, cut to milliseconds, some
// time between sent and answered. Pure.
func apart(sent, answered, at time.Time) time.Duration {
	switch most := at.Add(time.Millisecond); {
	case at.After(answered):
		return at.Sub(answered)
	case most.Before(sent):
		return most.Sub(sent)
	}
	return 0
}

func (s *session) checkRedis(ctx context.Context) checkup {
	if s.Redis == nil {
		return skipped("redis", config.EnvRedis+" is not set, or "+config.EnvDSN+" is not")
	}
	return within(ctx, func(ctx context.Context) checkup {
		if err := s.Redis.Ping(ctx).Err(); err != nil {
			return finding("redis", err.Error(), "sweeps go on without the lock; see the runbook, Redis is down")
		}
		return fine("redis", "it answers")
	})
}

func (c *common) doctorStock(ctx context.Context) error {
	s, err := c.open(config.EnvDSN)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Store.Migrated(ctx); err != nil {
		return err
	}
	last := time.Now()
	report, err := s.Store.CheckStock(ctx, func(orders int) {
		if time.Since(last) >= lineEvery && !c.quiet {
			last = time.Now()
			fmt.Fprintf(c.env.Stderr, "checked %d orders\n", orders)
		}
	})
	if errors.Is(err, store.ErrOwnTables) {
		return Exit(Refused, fmt.Errorf("%w; docs/mapping.md says how to look at yours", err))
	}
	if err != nil {
		return err
	}
	if err := c.print(report, func(w io.Writer) { printStock(w, report) }); err != nil {
		return err
	}
	if report.Found > 0 {
		return Exit(Findings, fmt.Errorf("%d findings about the stock", report.Found))
	}
	return nil
}

func printStock(w io.Writer, r store.StockReport) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\torder %s\tSKU %s\t%s\n", f.Kind, orDash(f.Order), orDash(f.SKU), oneLine(f.What, 200))
		fmt.Fprintf(w, "\t\t\t-> %s\n", f.Mend)
	}
	if more := r.Found - len(r.Findings); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintf(w, "%d SKUs, %d orders, %d ledger rows and %d receipts were compared: ", r.SKUs, r.Orders, r.Ledger, r.Receipts)
	if r.Found == 0 {
		fmt.Fprintln(w, "all is accounted for")
		return
	}
	fmt.Fprintf(w, "%d findings\n", r.Found)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return oneLine(s, 64)
}
