package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

// doctorTimeout bounds each check.
const doctorTimeout = 15 * time.Second

func newDoctor(c *common) *cobra.Command {
	var try bool
	cmd := &cobra.Command{
		Use:   "doctor [--try-close]",
		Short: "Check an installation: what status says, and what its servers and tables must be like",
		Long: `Show what orderclose status says about the pipeline as a whole, and check what does not
change while it runs: that brokers accept long commits, that the tables of the orders fit
the mapping, that their times are probable, and that the user of the database may write
what a close writes.

With --try-close also close one unpaid order that no other transaction locks, in a
transaction that is always rolled back, and print what would have changed.

doctor fixes nothing: each finding says what a person can do. Exits 3 with findings, such as
pending dead letters or a server, schema, topic or clock that status names; otherwise as
orderclose status. What else is for TODAY is no finding.`,
		Example: "  orderclose doctor\n  orderclose doctor --try-close -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.readAny(func(s *session) error { return c.doctor(cmd.Context(), s, try) })
		},
	}
	cmd.Flags().BoolVar(&try, "try-close", false, "also close one unpaid order, and roll back")
	return cmd
}

// check is one check: it returns what is well, or an error. The error is a finding with this fix, unless it is a *skip. A
// *store.MappingError is a finding for each of its problems.
type check struct {
	name, fix string
	run       func(context.Context) (well string, err error)
}

// skip says why a check could not be made.
type skip struct{ error }

// checkup is the result of one check.
type checkup struct {
	Check string `json:"check"`
	State string `json:"state"` // ok, FOUND, or - if the check could not be made
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// make makes the check.
func (k check) make(ctx context.Context) []checkup {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	well, err := k.run(ctx)
	_, skipped := errors.AsType[*skip](err)
	wrong, _ := errors.AsType[*store.MappingError](err)
	switch {
	case err == nil:
		return []checkup{{k.name, "ok", well, ""}}
	case skipped, errors.Is(err, orderclose.ErrUnavailable): // the verdict has what does not answer
		return []checkup{{k.name, "-", err.Error(), ""}}
	case wrong == nil:
		return []checkup{{k.name, "FOUND", err.Error(), k.fix}}
	}
	var all []checkup
	for _, p := range wrong.Problems {
		fix := p.How()
		p.Accept, p.Fix = "", "docs/mapping.md has every key"
		all = append(all, checkup{k.name, "FOUND", p.Error(), fix})
	}
	return all
}

// checked makes checks in their order, and ends behind one that is not ok if those behind it need it.
func checked(ctx context.Context, needed int, checks []check) (all []checkup) {
	for i, k := range checks {
		made := k.make(ctx)
		if all = append(all, made...); i < needed && made[0].State != "ok" {
			break
		}
	}
	return all
}

func (c *common) doctor(ctx context.Context, s *session, try bool) error {
	facts := s.facts(ctx)
	v := health.Judge(facts)
	needed, checks := s.checksOfDatabase(facts, try)
	all := append(checked(ctx, 0, s.checksOfKafka(v)), checked(ctx, needed, checks)...)
	found := 0
	for _, k := range all {
		if k.State == "FOUND" {
			found++
		}
	}
	for _, p := range v.Problems {
		if p.Is.InDoctor && p.Severity != health.Healed {
			found++
		}
	}
	return cmp.Or(c.print(struct {
		Verdict health.Verdict `json:"verdict"`
		Checks  []checkup      `json:"checks"`
	}{v, append([]checkup{}, all...)}, func(w io.Writer) {
		printVerdict(w, v)
		printCheckups(w, all)
	}), exitIf(found > 0, Findings, "findings: %d", found), verdictError(v))
}

func printCheckups(w io.Writer, all []checkup) {
	for _, k := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.State, k.Check, text.OneLine(k.What, 2000))
		if k.Fix != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", k.Fix)
		}
	}
}

// checksOfKafka returns the checks of the brokers; none if Kafka does not answer or has no topics, as the verdict says.
func (s *session) checksOfKafka(v health.Verdict) []check {
	if s.Kafka == nil || slices.ContainsFunc(v.Problems, func(p health.Problem) bool { return p.Is.Name == health.KafkaAway || p.Is.Name == ops.NoTopics }) {
		return nil
	}
	return []check{
		{"commits", fmt.Sprintf("set offset.metadata.max.bytes to %d or more on every broker", wire.MaxCommitBytes), s.checkCommits},
	}
}

// checkCommits checks that the brokers accept the longest commits: those of a partition on which
// many records were done in another order.
func (s *session) checkCommits(ctx context.Context) (well string, err error) {
	limit, err := s.Kafka.MetadataLimit(ctx)
	if err != nil {
		return "", &skip{err}
	}
	return "the brokers accept the longest", exitIf(limit < wire.MaxCommitBytes, Findings,
		"a broker limits the metadata of a commit to %d bytes, and refuses longer commits of relays and closers again and again", limit)
}

// checksOfDatabase returns the checks of the database. Those behind the first ones, as many as needed, need these.
func (s *session) checksOfDatabase(facts health.Facts, try bool) (needed int, checks []check) {
	if s.Store == nil {
		return 0, nil
	}
	tables := check{"tables of orders", "docs/mapping.md has every key", s.checkTables}
	schema := ops.SchemaCheck.Of(facts)
	if differs, is := errors.AsType[*store.SchemaError](schema.Err); is { // the verdict says what to do, and the other checks would fail for that
		if differs.Has == 0 && s.cfg.Orders != nil { // migrate refuses a mapping that does harm
			return 0, []check{tables}
		}
		return 0, nil
	}
	checks = []check{{"database", "docs/servers.md lists the servers that work", s.checkServer}, tables}
	if s.Store.OwnStore() { // it has no tables of orders
		checks = checks[:1]
	}
	needed = len(checks)
	checks = append(checks, check{"schema", "grant SELECT on the table orderclose_schema, or run orderclose migrate if it does not exist; " +
		"docs/security.md lists what each part needs", func(context.Context) (string, error) {
		if schema.Err != nil {
			return "", &skip{schema.Err}
		}
		return schemaIs(schema.Value), exitIf(schema.Value.Has == 0, Findings, "this user may not read its version")
	}})
	checks = append(checks, check{"hosts that disappear", "set these variables to 15 s for the database's user or the server, and in ProxySQL " +
		"mysql-max_transaction_idle_time to 15000; docs/servers.md has more about settings of sessions", s.checkSilence})
	if s.Store.OwnStore() {
		return needed, checks
	}
	checks = append(checks, check{"times of orders", "orderclose runbook due-times-differ", s.checkTimes})
	if s.cfg.ByRule() {
		checks = append(checks, check{"delays of orders", "orderclose migrate, with the newest topics.yaml; docs/mapping.md, Due by rule",
			func(ctx context.Context) (string, error) {
				return "those of topics.yaml are in force", s.Store.CheckDelays(ctx)
			}})
	}
	if s.cfg.Orders != nil {
		checks = append(checks, check{"due times of orders", "", s.checkOrders})
	}
	if s.cfg.Closer.Kind == config.KindHTTP {
		return needed, checks
	}
	checks = append(checks, check{"writes to the database", "orderclose runbook the-database-takes-no-writes",
		func(ctx context.Context) (string, error) { // also what its user may not write
			return "the writes of a close succeed", findingOf(s.Store.Writable(ctx))
		}})
	if try {
		checks = append(checks, check{"close of one order", "docs/mapping.md#trying-a-close says what a trial needs", func(ctx context.Context) (string, error) {
			t, err := s.Store.TryClose(ctx)
			return tried(t), err
		}})
	}
	return needed, checks
}

// findingOf returns an error that is a finding also if the database does not answer.
func findingOf(err error) error {
	if err == nil || !errors.Is(err, orderclose.ErrUnavailable) {
		return err
	}
	return errors.New(err.Error())
}

func (s *session) checkServer(ctx context.Context) (well string, err error) {
	name := cmp.Or(s.Store.Database(), "the database")
	server, err := s.Store.Server(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	unsafe, err := s.Store.Unsafe(ctx)
	if err != nil {
		unsafe = err.Error()
	}
	well = fmt.Sprintf("%s answers, its version is %s, and its session keeps UTC", name, server)
	for _, note := range []string{s.Store.Warning(), unsafe} {
		if note != "" {
			well += "; note: " + note
		}
	}
	return well, nil
}

// checkSilence checks how long the locks of a program whose host has disappeared stay.
func (s *session) checkSilence(ctx context.Context) (well string, err error) {
	longer, err := s.Store.Silence(ctx)
	if err == nil && longer != "" {
		err = fmt.Errorf("a proxy ignores what each session sets: %s. If the host of a program disappears in the middle of a transaction, checkouts, "+
			"payments and closes of the same orders and SKUs wait as long", longer)
	}
	return "their transactions end in the database after 15 s", err
}

// checkTables compares the orders' tables with the mapping.
func (s *session) checkTables(ctx context.Context) (well string, err error) {
	if err := cmp.Or(s.Store.CheckMapping(ctx), s.Store.SetAside(true)); err != nil {
		return "", err
	}
	notes, err := s.Store.MappingHints(ctx)
	return strings.Join(append([]string{"they fit the mapping"}, notes...), "; note: "), err
}

const (
	// timesSample is how many unpaid orders checkTimes reads, and timesBefore how long before the
	// present their due times begin: as long as two time zones are apart at most.
	timesSample = 1000
	timesBefore = 14 * time.Hour
	timesAfter  = 366 * 24 * time.Hour
)

// checkTimes looks for orders whose times can only come from a wrong time zone. It reads the sweep's
// index, and only a sample.
func (s *session) checkTimes(ctx context.Context) (well string, err error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return "", err
	}
	orders, err := s.Store.DueBetween(s.Store.LimitReads(ctx), now.Add(-timesBefore), now.Add(timesAfter), orderclose.Order{}, timesSample)
	if store.IsSlow(err) {
		return "", &skip{err}
	}
	for _, o := range orders {
		why := ""
		switch {
		case o.CreatedAt.After(now.Add(time.Minute)):
			return "", fmt.Errorf("order %q is created in the future: created %s, due %s, now %s: its checkout's clock is ahead, or a program writes "+
				"local time into a column of UTC, or the zone of the mapping is wrong", o.ID, text.Stamp(o.CreatedAt), text.Stamp(o.Due), text.Stamp(now))
		case o.CreatedAt.After(o.Due):
			why = "is due before it was created"
		default:
			continue
		}
		return "", fmt.Errorf("order %q %s: created %s, due %s, now %s: a program writes local time into a column of UTC, "+
			"or the zone of the mapping is wrong", o.ID, why, text.Stamp(o.CreatedAt), text.Stamp(o.Due), text.Stamp(now))
	}
	return fmt.Sprintf("%d unpaid orders were read; none is created in the future, or due before it was created", len(orders)), err
}
