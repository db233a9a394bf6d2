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

	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// doctorTimeout bounds each check.
const doctorTimeout = 15 * time.Second

func newDoctor(c *common) *cobra.Command {
	var try bool
	cmd := &cobra.Command{
		Use:   "doctor [--try-close]",
		Short: "Check servers, clocks, schema, topics and dead letters",
		Long: `Check that the servers that are set answer, how much the clocks differ, that schema
and topics are as this version needs them, that brokers accept long commits, that Redis
takes writes, that no dead letter is pending, and what orderclose status says about the
pipeline as a whole.

With --try-close also close one unpaid order that no other transaction locks, in a
transaction that is always rolled back, and print what would have changed.

doctor fixes nothing: each finding says what a person can do. A finding with a section of the
runbook has the first commands of that section. TODAY marks what needs a look
and is no finding. Exits 3 with findings, and 6 if a part of the state is unknown as orderclose
status shows it.`,
		Example: "  orderclose doctor\n  orderclose doctor --try-close",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.doctor(cmd.Context(), try)
		},
	}
	cmd.Flags().BoolVar(&try, "try-close", false, "also close one unpaid order, and roll back")
	return cmd
}

// checkup is the result of one check.
type checkup struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Skipped says that the check could not be made.
	Skipped bool `json:"skipped,omitempty"`
	// Today says that somebody should look at it today. It is no finding.
	Today bool   `json:"today,omitempty"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`

	section string // of the runbook, whose first commands are printed; "": none
}

func passed(check, format string, args ...any) checkup {
	return checkup{Check: check, OK: true, What: fmt.Sprintf(format, args...)}
}

// notChecked is the result of a check that depends on values that a broken topics.yaml does not tell:
// the defaults say nothing about the pipeline.
func notChecked(check string) checkup { return skipped(check, "not checked: topics.yaml is broken") }

func finding(check, what, fix string) checkup { return checkup{Check: check, What: what, Fix: fix} }

// inRunbook is a finding whose fix is a section of the runbook, by the end of its URL.
func inRunbook(check, what, section string) checkup {
	return checkup{Check: check, What: what, Fix: "orderclose runbook " + section, section: section}
}

func skipped(check, why string) checkup { return checkup{Check: check, Skipped: true, What: why} }

func (c *common) doctor(ctx context.Context, try bool) error {
	s, err := c.openReadOnly([]string{config.EnvBrokers, config.EnvDSN}, config.EnvRedis)
	if err != nil {
		return err
	}
	defer s.Close()
	e := exam{session: s, Facts: s.questions(ctx).Facts(ctx), try: try}
	e.verdict = ops.Judge(e.Facts)
	if do := e.newInstallation(); do != "" {
		all := s.checkSettings()
		if s.Store != nil { // migrate refuses a mapping that does harm
			all = append(all, mappingFindings(tablesOfOrders, s.Store.CheckMapping(ctx))...)
		}
		return c.printCheckups(append(all, finding("installation", "new installation", do)), nil)
	}
	all, offset := s.checkSettings(), ops.AskOffset.Of(e.Facts)
	all = append(slices.Concat(all, e.checkKafka(ctx), e.checkDatabase(ctx)),
		e.answer("clocks", ops.ClocksDiffer, offset.Err, "that of the database differs by "+offset.Value.Round(time.Millisecond).String()))
	switch {
	case s.cfg.Compensator.Lock.Kind == config.LockDatabase && s.Store != nil:
		all = append(all, e.answer("lock", ops.LockRefused, ops.AskOverdue.Of(e.Facts).Err,
			"it is a row of the database; Redis is not used", "compensator.lock"))
	case s.cfg.Compensator.Lock.Kind == config.LockDatabase:
		all = append(all, skipped("lock", config.EnvDSN+" is not set"))
	case s.Redis == nil:
		all = append(all, skipped("redis", config.EnvRedis+" is not set"))
	default:
		all = append(all, e.answer("redis", ops.LockRefused, nil, "it takes writes"))
	}
	if len(s.found.Problems) == 0 { // otherwise the topics that were asked may be others
		all = append(all, othersOf(e.verdict.Problems)...)
		if s.Kafka != nil {
			err = verdictError(e.verdict)
		}
	}
	return c.printCheckups(all, err)
}

// printCheckups prints checks, and returns the error of the command; err is its error without findings.
func (c *common) printCheckups(all []checkup, err error) error {
	return cmp.Or(c.print(struct {
		Checks []checkup `json:"checks"`
	}{all}, func(w io.Writer) { printCheckups(w, all) }), checkupsError(all), err)
}

// checkSettings reports problems of topics.yaml and of the environment. The other checks use
// the valid settings, and skip what depends on the others.
func (s *session) checkSettings() (all []checkup) {
	if broken := s.found.Problems; len(broken) > 0 {
		all = append(all, finding("topics.yaml", fmt.Sprintf("%s, such as: %v", plural(len(broken), "problem"), broken[0]),
			"fix the file; no process starts with it. What depends on its invalid values is not checked"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.wrong)) {
		all = append(all, finding(name, s.wrong[name].Error(), "fix the value; the checks below treat it as not set"))
	}
	if s.cfg != nil && s.cfg.Closer.Kind == config.KindHTTP && !s.found.Unknown("closer.http.url") {
		all = append(all, passed("events", "orders are closed by a service: events come from it, as docs/http.md says"))
	}
	return all
}

func printCheckups(w io.Writer, all []checkup) {
	for _, k := range all {
		state := "ok"
		switch {
		case k.Today:
			state = "TODAY"
		case k.Skipped:
			state = "-"
		case !k.OK:
			state = "FOUND"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", state, k.Check, oneLine(k.What, 2000))
		if k.Fix != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", k.Fix)
			printFirst(w, "\t\t", k.section)
		}
	}
}

func checkupsError(all []checkup) error {
	found := 0
	for _, k := range all {
		if !k.OK && !k.Skipped && !k.Today {
			found++
		}
	}
	return exitIf(found > 0, Findings, "findings: %d", found)
}

// check makes one check, with a timeout. needs are the keys of topics.yaml on which the check depends.
func (s *session) check(ctx context.Context, name string, run func(ctx context.Context, name string) checkup, needs ...string) checkup {
	if len(needs) > 0 && s.found.Unknown(needs...) {
		return notChecked(name)
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	return run(ctx, name)
}

// exam is a session with the answers to the questions of the verdict.
type exam struct {
	*session
	ops.Facts
	verdict ops.Verdict
	try     bool // doctor --try-close
}

// newInstallation returns the commands that install what a new installation lacks. It returns "" if there is a schema or a topic,
// or if a server does not answer.
func (e exam) newInstallation() string {
	var do []string
	if e.Store != nil {
		if wrong, is := errors.AsType[*store.SchemaError](ops.AskSchema.Of(e.Facts).Err); !is || wrong.Has > 0 {
			return ""
		}
		do = append(do, "orderclose migrate")
	}
	if e.Kafka != nil {
		if !e.noTopics() {
			return ""
		}
		do = append(do, "orderclose topics apply")
	}
	return strings.Join(do, ", then ")
}

// noTopics reports whether none of the topics exists.
func (e exam) noTopics() bool {
	return slices.ContainsFunc(e.verdict.Problems, func(p ops.Problem) bool { return p.Is.Name == ops.NoTopics })
}

// answer is the check of one question of the verdict: a finding if there is a problem of that kind, and skipped if the question
// has the error. needs are as those of check.
func (e exam) answer(check string, kind ops.ProblemKind, err error, well string, needs ...string) checkup {
	i := slices.IndexFunc(e.verdict.Problems, func(p ops.Problem) bool { return p.Kind == kind })
	switch {
	case len(needs) > 0 && e.found.Unknown(needs...):
		return notChecked(check)
	case i >= 0:
		return inRunbook(check, e.verdict.Problems[i].Text(), e.verdict.Problems[i].Runbook)
	case err != nil:
		return skipped(check, err.Error())
	}
	return passed(check, "%s", well)
}

// checkKafka makes the checks that need Kafka.
func (e exam) checkKafka(ctx context.Context) (all []checkup) {
	s := e.session
	if s.Kafka == nil {
		return []checkup{skipped("kafka", config.EnvBrokers+" is not set")}
	}
	all = []checkup{e.answer("kafka", ops.KafkaAway, nil, strings.Join(s.servers.Brokers, ",")+" answers")}
	if ops.AskStatus.Of(e.Facts).Away() {
		return all
	}
	topics := ops.AskTopics.Of(e.Facts)
	all = append(all, e.answer("topics", ops.TopicsDiffer, topics.Err, fmt.Sprintf("all %d match topics.yaml: %s", topics.Value.Topics, topics.Value.Durability),
		"topics", "buckets", "partitions", "replication", "sync"))
	if e.noTopics() {
		return all // the other checks would fail for that reason
	}
	all = append(all,
		e.answer("dead letters", ops.LettersPending, ops.AskLetters.Of(e.Facts).Err, "none pending", "topics.prefix"),
		s.check(ctx, "commits", s.checkCommits))
	return append(all, s.check(ctx, "clock of Kafka", func(ctx context.Context, check string) checkup {
		offset, err := clock.Offset(ctx, func(ctx context.Context) (time.Time, error) { return s.Kafka.Time(ctx, s.cfg.Topics.Control) })
		switch {
		case errors.Is(err, kafka.ErrNoAppendTime):
			return skipped(check, err.Error()+". Release times then follow the clocks of those who append: synchronise all of them")
		case err != nil:
			return finding(check, "the control topic does not answer: "+err.Error(),
				"relays measure the clock by a record to the control topic: fix the topic, or the access to it")
		}
		return clockCheckup(check, offset)
	}, "topics.prefix"))
}

func clockCheckup(check string, offset time.Duration) checkup {
	if offset.Abs() > ops.ClockSkewWarning {
		return finding(check, fmt.Sprintf("differs by %v", offset.Round(time.Millisecond)),
			"fix the time synchronisation; orders do not close early, but may be late")
	}
	return passed(check, "differs by %v", offset.Round(time.Millisecond))
}

// checkCommits checks that the brokers accept the longest commits: those of a partition on which
// many records were done in another order.
func (s *session) checkCommits(ctx context.Context, check string) checkup {
	limit, err := s.Kafka.MetadataLimit(ctx)
	switch {
	case err != nil:
		return skipped(check, "not checked: "+err.Error())
	case limit < wire.MaxCommitBytes:
		return finding(check, fmt.Sprintf("a broker limits the metadata of a commit to %d bytes, and refuses longer commits of relays and closers again and again",
			limit),
			fmt.Sprintf("set offset.metadata.max.bytes to %d or more on every broker", wire.MaxCommitBytes))
	}
	return passed(check, "the brokers accept the longest")
}

// othersOf returns the problems that no check above has shown.
func othersOf(problems []ops.Problem) (all []checkup) {
	for _, p := range problems {
		switch k := inRunbook(p.Title(), p.Text(), p.Runbook); {
		case p.Is.InDoctor:
		case p.Severity == ops.Healed:
			all = append(all, skipped(p.Title(), p.Text()))
		default:
			k.Today = p.Severity == ops.Today
			all = append(all, k)
		}
	}
	return all
}
