// Package health says whether all is well with a pipeline: what a check is, what its answers mean, and which causes hide which consequences.
// The checks are in internal/ops, and that of the webhook in its package.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

// Check is a question about a pipeline, and what its answer means. Status, doctor and the console ask and judge the same
// list: that of internal/ops, and that of package webhook.
type Check struct {
	Name   string                                    // says in a finding which question got no answer, such as "dead letters"
	Every  time.Duration                             // an answer that is younger is not asked for again
	Limit  time.Duration                             // of one attempt
	Ask    func(context.Context, Asked) (any, error) // nil: Judge reads the answers of other checks
	Rest   func(answer any) time.Duration            // how much longer than Every an answer lasts; nil: no longer
	Doubts string                                    // the name of a check that is asked again after an error of this one
	Judge  func(*Findings)                           // adds findings; nil: only errors of Ask are findings
	Finds  []Kind                                    // of the findings
}

// Kind says what findings of a kind mean.
type Kind struct {
	Name     ProblemKind      // "": the errors are no finding
	Errors   func(error) bool // the errors of Ask that are of this kind; those of none are NotAnswered
	As       ProblemKind      // the kind that people see; "": Name
	Severity Severity         // "": nobody sees it, and it only hides others
	Runbook  string           // the section of the runbook, as the end of its URL
	Blind    bool             // a part of the state is unknown
	InDoctor bool             // it is a finding of doctor, also if it can wait until today's work
	Page     string           // the path in the console that shows more; "": none
	// Hides has the kinds of findings that follow from this one, and the names of checks that get no answer because of it.
	Hides []ProblemKind
}

// Name is the name of a check whose answer is a T.
type Name[T any] string

// Asked is the pipeline that a check asks: a Pipeline of internal/ops.
type Asked interface {
	Settings() *config.Config
	Database() *store.Store // nil: the process knows none
}

// KafkaCheck is the name of the check that asks Kafka.
const KafkaCheck Name[backlog.Status] = "Kafka"

// By returns the Check.Ask of the check with this name.
func (Name[T]) By(ask func(Asked, context.Context) (T, error)) func(context.Context, Asked) (any, error) {
	return func(ctx context.Context, of Asked) (any, error) { return ask(of, ctx) }
}

// Of returns the answer among facts; the zero Answer if it was not asked.
func (n Name[T]) Of(f Facts) Answer[T] {
	a := f.Answers[string(n)]
	v, _ := a.Value.(T)
	return Answer[T]{v, a.At, a.Err, a.Since}
}

// ErrNoKafka and ErrNoDatabase are the errors of a question to a server that the process does not know, and ErrUnused that of one without
// need of it.
var (
	ErrNoKafka    = errors.New("set " + environ.EnvBrokers)
	ErrNoDatabase = errors.New("set " + environ.EnvDSN)

	ErrUnused = fmt.Errorf("a sweeper uses no Kafka: %w", ErrNoKafka)
)

// ErrNotYet says that a question has no answer yet.
var ErrNotYet = errors.New("no answer yet")

// Answer is the last answer to a Question, and why there is no newer one.
type Answer[T any] struct {
	Value T
	At    time.Time // when it was given; zero: never
	Err   error     // of the attempts since then; nil: the answer is as new as it should be
	Since time.Time // the first of these errors
}

// Away reports whether the server does not answer.
func (a Answer[T]) Away() bool { return a.Err != nil }

// Known reports whether there is an answer.
func (a Answer[T]) Known() bool { return !a.At.IsZero() }

// Facts are what is known about a pipeline at one moment: the answers to the questions of some checks.
type Facts struct {
	Now     time.Time
	Checks  []Check
	Answers map[string]Answer[any] // by the name of the check
}

// ProblemKind names a kind of problem of a pipeline.
type ProblemKind string

// The kinds of problems.
const (
	KafkaAway      ProblemKind = "kafka_away"      // Kafka does not answer
	BrokersSilent  ProblemKind = "brokers_silent"  // some brokers do not answer, and others do
	NotAnswered    ProblemKind = "not_answered"    // a question got no answer, though its server answers others
	DatabaseAway   ProblemKind = "database_away"   // the database does not answer
	WritesRefused  ProblemKind = "writes_refused"  // the database refuses the writes of a close
	RecordsOverdue ProblemKind = "records_overdue" // records should have left their topic
	TopicUnread    ProblemKind = "topic_unread"    // the state of a topic or partition is unknown
	OrdersOverdue  ProblemKind = "orders_overdue"  // the database has unpaid orders that should have been closed
	ClosingPaused  ProblemKind = "closing_paused"  // somebody has paused the closes
	PausesUnknown  ProblemKind = "pauses_unknown"  // whether somebody has is unknown
	SweepFailed    ProblemKind = "sweep_failed"    // the compensation of a period has not finished in half of it
	SweepMissing   ProblemKind = "sweep_missing"   // no compensation has finished in two periods
	SweepFound     ProblemKind = "sweep_found"     // in the newest period the compensator closed orders that the pipeline had missed
	LettersOpen    ProblemKind = "letters_open"    // dead letters wait for a person
	OutboxLate     ProblemKind = "outbox_late"     // rows of an outbox do not reach Kafka
	TopicsDiffer   ProblemKind = "topics_differ"   // the topics differ from topics.yaml
	ConfigBroken   ProblemKind = "config_broken"   // topics.yaml has a mistake
	MemberStuck    ProblemKind = "member_stuck"    // a member of a group has overdue records and moves nothing, while others move theirs
	LockRefused    ProblemKind = "lock_refused"    // Redis, which has the lock of the compensator, does not answer or takes no writes
	CheckoutClock  ProblemKind = "checkout_clock"  // orders are created by a wrong clock
	ClocksDiffer   ProblemKind = "clocks_differ"   // the clocks of this machine and the database differ
	SchemaDiffers  ProblemKind = "schema_differs"  // this program cannot use the database's schema
	TablesUnfit    ProblemKind = "tables_unfit"    // tables of some months do not fit the mapping, and their orders stay open
	DelaysDiffer   ProblemKind = "delays_differ"   // orders are due by rule, and the database has other delays than topics.yaml
	PaymentsLate   ProblemKind = "payments_late"   // money came after a close, and nobody has decided what becomes of it
)

// Severity says how urgent a problem is.
type Severity string

// The severities, the most urgent first.
const (
	Urgent Severity = "urgent" // orders are late or early, or will be
	Today  Severity = "today"  // somebody should look today
	Healed Severity = "healed" // it is over
)

// rank is smaller for what is more urgent.
func (s Severity) rank() int { return slices.Index([]Severity{Urgent, Today, Healed}, s) }

// Problem is one thing that is wrong.
type Problem struct {
	Kind     ProblemKind `json:"kind"`
	Severity Severity    `json:"severity"`
	// Detail is what was found, such as a topic and a number of seconds, or an error.
	Detail string `json:"detail"`
	// Count is how many topics, partitions, pauses, records, orders or delays it concerns; 0 if it is not counted.
	Count int `json:"count,omitempty"`
	// Orders is how many orders wait because of it; 0 if they are not counted.
	Orders int64 `json:"orders,omitempty"`
	// Since is when it began; zero if that is unknown.
	Since time.Time `json:"since,omitzero"`
	// Process is the process that it concerns, as role@host:pid:port; "": none, or several.
	Process string `json:"process,omitempty"`
	// Runbook is the section of the runbook, as the end of its URL.
	Runbook string `json:"runbook"`
	// Commands are what ends the problem, exactly; without any, the first commands of the section show more.
	Commands []string `json:"commands,omitempty"`
	Is       Kind     `json:"-"`
}

// State says whether all is well.
type State string

// The states.
const (
	Well      State = "well"    // Kafka and the database answered, and no problem needs attention
	LookToday State = "today"   // no problem needs action now, and some need a look today
	ActNow    State = "urgent"  // orders are late or early, or will be
	Unknown   State = "unknown" // something was not answered, and nothing that is known is urgent
)

// Verdict is whether all is well with a pipeline.
type Verdict struct {
	State    State     `json:"state"`
	Problems []Problem `json:"problems"` // the most urgent first
}

// Title returns the kind in words, such as "writes refused".
func (p Problem) Title() string { return strings.ReplaceAll(string(p.Kind), "_", " ") }

// Text describes the problem in one line, without title and severity.
func (p Problem) Text() string {
	var parts []string
	if p.Process != "" {
		parts = append(parts, p.Process)
	}
	if p.Count > 1 {
		parts = append(parts, fmt.Sprint(p.Count))
	}
	if p.Detail != "" {
		parts = append(parts, p.Detail)
	}
	if p.Orders > 0 && p.Kind != OrdersOverdue { // its detail has the number
		parts = append(parts, fmt.Sprintf("%d orders wait", p.Orders))
	}
	if !p.Since.IsZero() {
		parts = append(parts, "since "+text.Stamp(p.Since))
	}
	return strings.Join(parts, "; ")
}

// Judge says whether all is well. It lists causes before their consequences: the first problem explains the state. It is a pure function.
func Judge(facts Facts) Verdict {
	f := Findings{Facts: facts, kinds: map[ProblemKind]Kind{}}
	for _, c := range facts.Checks {
		for _, k := range c.Finds {
			f.kinds[k.Name] = k
		}
	}
	for _, c := range facts.Checks {
		if facts.Answers[c.Name].Err != nil {
			f.fault(c)
		}
		if c.Judge != nil {
			c.Judge(&f)
		}
	}
	return f.verdict()
}

// Findings are what the checks have found so far.
type Findings struct {
	Facts
	kinds map[ProblemKind]Kind
	all   []Problem
}

// Add adds a finding, and returns it for more to be said until the next one is added.
func (f *Findings) Add(kind ProblemKind, count int, detail string) *Problem {
	k := f.kinds[kind]
	f.all = append(f.all, Problem{Is: k, Kind: cmp.Or(k.As, kind), Severity: k.Severity, Detail: detail, Count: count, Runbook: k.Runbook})
	return &f.all[len(f.all)-1]
}

// Kind returns what findings of a kind mean.
func (f *Findings) Kind(kind ProblemKind) Kind { return f.kinds[kind] }

// Found returns the first finding of a kind; nil: there is none.
func (f *Findings) Found(kind ProblemKind) *Problem {
	if i := slices.IndexFunc(f.all, func(p Problem) bool { return p.Is.Name == kind }); i >= 0 {
		return &f.all[i]
	}
	return nil
}

// fault adds a finding for the error of a check, unless its server has no name. A late answer is no refusal.
func (f *Findings) fault(c Check) {
	a, kind := f.Answers[c.Name], NotAnswered
	if i := slices.IndexFunc(c.Finds, func(k Kind) bool { return k.Errors != nil && k.Errors(a.Err) }); i >= 0 {
		kind = c.Finds[i].Name
	}
	switch {
	case kind == "", errors.Is(a.Err, ErrNoDatabase), errors.Is(a.Err, ErrUnused), errors.Is(a.Err, ErrNoKafka) && kind != KafkaAway:
	case kind == NotAnswered, errors.Is(a.Err, ErrNotYet):
		f.Add(NotAnswered, 1, c.Name+": "+a.Err.Error()).Is.Name = ProblemKind(c.Name)
	default:
		// Redis ends some errors with a dot.
		p := f.Add(kind, 0, strings.TrimSuffix(a.Err.Error(), "."))
		if a.Known() { // a first question cannot tell when the fault began
			p.Since = a.Since
		}
	}
}

// verdict leaves out the findings that others hide, and sums up the questions without an answer.
func (f *Findings) verdict() Verdict {
	var hidden []ProblemKind
	for _, p := range f.all {
		hidden = append(hidden, p.Is.Hides...)
	}
	v := Verdict{State: Well, Problems: []Problem{}}
	var unanswered []string
	for _, p := range f.all {
		switch {
		case slices.Contains(hidden, p.Is.Name), p.Severity == "":
		case p.Kind == NotAnswered:
			unanswered = append(unanswered, p.Detail)
		default:
			v.Problems = append(v.Problems, p)
		}
	}
	if len(unanswered) > 0 { //mutant:unanswered-left-out
		v.Problems = slices.Insert(v.Problems, 0, *f.Add(NotAnswered, len(unanswered), strings.Join(unanswered, "; ")))
	}
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	has := func(is func(Problem) bool) bool { return slices.ContainsFunc(v.Problems, is) }
	switch {
	case has(func(p Problem) bool { return p.Severity == Urgent && !p.Is.Blind }):
		v.State = ActNow
	case has(func(p Problem) bool { return p.Is.Blind }):
		v.State = Unknown
	case has(func(p Problem) bool { return p.Severity == Today }):
		v.State = LookToday
	}
	return v
}
