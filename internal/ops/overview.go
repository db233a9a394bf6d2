package ops

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/text"
)

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
	NotAnswered    ProblemKind = "not_answered"    // a question got no answer, though its server answers others
	DatabaseAway   ProblemKind = "database_away"   // the database does not answer
	WritesRefused  ProblemKind = "writes_refused"  // the database refuses the writes of a close
	RecordsOverdue ProblemKind = "records_overdue" // records should have left their topic
	TopicUnread    ProblemKind = "topic_unread"    // the state of a topic or partition is unknown
	OrdersOverdue  ProblemKind = "orders_overdue"  // the database has unpaid orders that should have been closed
	ClosesSlow     ProblemKind = "closes_slow"     // orders are overdue, and a closer closes only a few at once, because each transaction takes long
	ClosingPaused  ProblemKind = "closing_paused"  // somebody has paused the closes
	PausesUnknown  ProblemKind = "pauses_unknown"  // whether somebody has is unknown
	SweepFailed    ProblemKind = "sweep_failed"    // the compensation of a period has not finished in half of it
	SweepMissing   ProblemKind = "sweep_missing"   // no compensation has finished in two periods
	SweepFound     ProblemKind = "sweep_found"     // in the newest period the compensator closed orders that the pipeline had missed
	LettersPending ProblemKind = "letters_pending" // dead letters wait for a person
	TopicsDiffer   ProblemKind = "topics_differ"   // the topics differ from topics.yaml
	ConfigBroken   ProblemKind = "config_broken"   // topics.yaml has a mistake
	ProcessGone    ProblemKind = "process_gone"    // a process should run and does not
	ProcessFrozen  ProblemKind = "process_frozen"  // a process holds partitions with overdue records, and moves nothing
	LockRefused    ProblemKind = "lock_refused"    // Redis, which has the lock of the compensator, does not answer or takes no writes
	ClocksDiffer   ProblemKind = "clocks_differ"   // the clocks of this machine, the database and the brokers differ
	SchemaDiffers  ProblemKind = "schema_differs"  // this program cannot use the database's schema
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
	// Since is when it began, or when it was first seen; zero if that is unknown.
	Since time.Time `json:"since,omitzero"`
	// Process is the process that it concerns, as role@host:pid:port; "": none, or several.
	Process string `json:"process,omitempty"`
	// Runbook is the section of the runbook, as the end of its URL.
	Runbook string `json:"runbook"`
	Is      Kind   `json:"-"`
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
