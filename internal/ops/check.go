package ops

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ClockSkewWarning is the smallest difference between two clocks that doctor, console and log report.
const ClockSkewWarning = 250 * time.Millisecond

// factTimeout bounds the reading of what processes have announced.
const factTimeout = 15 * time.Second

// Check is a question about a pipeline, and what its answer means. Status, doctor and the console ask and judge the same
// list: Checks, and those of rooms.
type Check struct {
	Name    string                                       // says in a finding which question got no answer, such as "dead letters"
	Every   time.Duration                                // an answer that is younger is not asked for again
	Limit   time.Duration                                // of one attempt
	Ask     func(context.Context, Pipeline) (any, error) // nil: Judge reads the answers of other checks
	Rest    func(answer any) time.Duration               // how much longer than Every an answer lasts; nil: no longer
	Doubts  string                                       // the name of a check that is asked again after an error of this one
	Failing string                                       // the key in wire.Process.Failing that says since when processes meet this fault; "": none
	Judge   func(*Findings)                              // adds findings; nil: only errors of Ask are findings
	Finds   []Kind                                       // of the findings
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
	Titles   Titles           // of a kind of a room; nil: the console has them
	// Hides has the kinds of findings that follow from this one, and the names of checks that get no answer because of it.
	Hides []ProblemKind
}

// Titles are what the console calls the findings of a kind, by language: en and zh.
type Titles map[string]string

// Name is the name of a check whose answer is a T.
type Name[T any] string

// The names of the checks whose answers others read.
const (
	AskStatus  Name[Status]             = "Kafka"
	AskOverdue Name[OverdueOrders]      = "database"              // which orders are overdue there
	AskWrites  Name[struct{}]           = "writes"                // its error is why a close cannot be written
	AskLock    Name[struct{}]           = "lock"                  // its error is why Redis cannot give the lock of the compensator
	AskOffset  Name[time.Duration]      = "clock of the database" // by how much it is ahead of that of this machine
	AskSchema  Name[store.Schema]       = "schema"
	AskPauses  Name[[]wire.Pause]       = "pauses"
	AskSweeps  Name[Sweeps]             = "sweeps"
	AskHours   Name[Hours]              = "compensations"
	AskTopics  Name[TopicsPlan]         = "topics"
	AskLetters Name[deadletters.Counts] = "dead letters" // that are pending, by cause
	AskConfig  Name[struct{}]           = "topics.yaml"  // its error is that of the file
	AskLate    Name[store.LateSummary]  = "late payments"
)

// By returns the Check.Ask of the check with this name.
func (Name[T]) By(ask func(Pipeline, context.Context) (T, error)) func(context.Context, Pipeline) (any, error) {
	return func(ctx context.Context, p Pipeline) (any, error) { return ask(p, ctx) }
}

// Of returns the answer among facts; the zero Answer if it was not asked.
func (n Name[T]) Of(f Facts) Answer[T] { return typed[T](f.Answers[string(n)]) }

// Get asks one of the questions.
func (n Name[T]) Get(ctx context.Context, q *Questions) Answer[T] {
	return typed[T](q.byName[string(n)].Get(ctx))
}

// Forget is Question.Forget of one of the questions.
func (n Name[T]) Forget(q *Questions) { q.byName[string(n)].Forget() }

func typed[T any](a Answer[any]) Answer[T] {
	v, _ := a.Value.(T)
	return Answer[T]{v, a.At, a.Err, a.Since}
}

// only is a question whose answer is that there is no error.
func only(check func(Pipeline, context.Context) error) func(Pipeline, context.Context) (struct{}, error) {
	return func(p Pipeline, ctx context.Context) (struct{}, error) { return struct{}{}, check(p, ctx) }
}

// Questions are those of a list of checks, each to one server. Make them with NewQuestions.
type Questions struct {
	checks []Check
	byName map[string]*Question[any]
}

// NewQuestions returns the questions of Checks, and of checks of rooms, about a pipeline. ends and first are those of NewQuestion.
func NewQuestions(ends context.Context, first time.Duration, pipeline func() Pipeline, rooms ...Check) *Questions {
	q := &Questions{append(Checks(), rooms...), map[string]*Question[any]{}}
	for _, c := range q.checks {
		if c.Ask == nil {
			continue
		}
		asks := NewQuestion(ends, c.Every, c.Limit, first, func(ctx context.Context) (any, error) {
			answer, err := c.Ask(ctx, pipeline())
			if err != nil && c.Doubts != "" {
				q.byName[c.Doubts].Forget()
			}
			return answer, err
		})
		asks.rest = c.Rest
		q.byName[c.Name] = asks
	}
	return q
}

// Facts asks all questions at once.
func (q *Questions) Facts(ctx context.Context) Facts {
	f := Facts{Checks: q.checks, Answers: map[string]Answer[any]{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, question := range q.byName {
		all.Go(func() {
			answer := question.Get(ctx)
			mu.Lock()
			defer mu.Unlock()
			f.Answers[name] = answer
		})
	}
	all.Wait()
	f.Now = time.Now()
	return f
}

// pendingLetters counts the dead letters that wait for a person, by cause.
func (p Pipeline) pendingLetters(ctx context.Context) (deadletters.Counts, error) {
	switch {
	case p.Kafka == nil:
		return nil, ErrNoKafka
	case p.Pending != nil:
		return p.Pending()
	}
	topic := deadletters.Topic{Log: p.Kafka, Name: p.Config.Topics.DeadLetter}
	_, index, err := topic.Index(ctx, deadletters.Filter{})
	if err != nil {
		return nil, err
	}
	return index.Pending(), nil
}

// ClosesInDatabase reports whether orders are closed in the database, rather than by a service.
func (p Pipeline) ClosesInDatabase() bool {
	_, err := p.ClosingDatabase()
	return err == nil
}

// ErrClosedElsewhere says that the orders are not closed in the database, so that it does not decide.
var ErrClosedElsewhere = errors.New("a service (closer.http.url), or a Store of the program, closes the orders: ask it")

// ClosingDatabase returns the database in which orders are closed. The error is ErrClosedElsewhere, or ErrNoDatabase.
func (p Pipeline) ClosingDatabase() (*store.Store, error) {
	switch {
	case p.OwnStore || p.Config.Closer.Kind == config.KindHTTP:
		return nil, ErrClosedElsewhere
	case p.Store == nil:
		return nil, ErrNoDatabase
	}
	return p.Store, nil
}

// Writable tries the writes of a close, and rolls them back. It returns nil if orders are not closed in
// the database. A user who may only read learns at least whether the server is read-only.
func (p Pipeline) Writable(ctx context.Context) error {
	if !p.ClosesInDatabase() {
		return nil
	}
	return p.Store.TakesWrites(ctx)
}

// Lockable returns an error if Redis does not answer or refuses writes, by a key beside that of the lock. Redis answers a PING also
// when it refuses every write. Without Redis it returns nil: other questions report a database that does not answer.
func (p Pipeline) Lockable(ctx context.Context) error {
	if p.Redis == nil || p.Config.Compensator.Lock.Kind == config.LockDatabase {
		return nil
	}
	return p.Redis.Set(ctx, p.Config.Compensator.Lock.Key+":probe", 1, lock.DefaultExpiry).Err()
}

// Schema reads the version of the database's schema. The error is a *store.SchemaError if this program cannot use
// it, and ErrNoDatabase without a database. The version is 0 if the user may not read it.
func (p Pipeline) Schema(ctx context.Context) (store.Schema, error) {
	if p.Store == nil {
		return store.Schema{}, ErrNoDatabase
	}
	v, err := p.Store.Schema(ctx)
	if store.Denied(err) {
		return store.Schema{}, nil
	}
	return v, err
}

// DatabaseOffset returns by how much the database's clock is ahead of that of this machine.
func (p Pipeline) DatabaseOffset(ctx context.Context) (time.Duration, error) {
	if p.Store == nil {
		return 0, ErrNoDatabase
	}
	return clock.Offset(ctx, p.Store.Now)
}
