package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ClockSkewWarning is the smallest difference between two clocks that doctor, console and log report.
const ClockSkewWarning = 250 * time.Millisecond

// The names of the checks whose answers others read.
const (
	OverdueCheck health.Name[backlog.OverdueOrders] = "database"              // which orders are overdue there
	WritesCheck  health.Name[struct{}]              = "writes"                // its error is why a close cannot be written
	LockCheck    health.Name[struct{}]              = "lock"                  // its error is why Redis cannot give the lock of the compensator
	ClockCheck   health.Name[time.Duration]         = "clock of the database" // by how much it is ahead of that of this machine
	// CheckoutsCheck is which clocks of checkouts are wrong, as the database shows it.
	CheckoutsCheck health.Name[[]clock.Skew]       = "clocks of checkouts"
	SchemaCheck    health.Name[store.Schema]       = "schema"
	MonthsCheck    health.Name[struct{}]           = "tables of months" // its error is why those of some are left out
	PausesCheck    health.Name[[]pausing.Pause]    = "pauses"
	HoursCheck     health.Name[Hours]              = "compensations"
	TopicsCheck    health.Name[TopicsPlan]         = "topics"
	LettersCheck   health.Name[deadletters.Counts] = "dead letters" // that are open, by cause
	OutboxCheck    health.Name[[]OutboxWaits]      = "outboxes"
	ConfigCheck    health.Name[struct{}]           = "topics.yaml" // its error is that of the file
	LateCheck      health.Name[store.LateSummary]  = "late payments"
)

// Get asks one of the questions.
func Get[T any](ctx context.Context, q *Questions, name health.Name[T]) health.Answer[T] {
	return name.Of(health.Facts{Answers: map[string]health.Answer[any]{string(name): q.byName[string(name)].Get(ctx)}})
}

// Forget is Question.Forget of one of the questions.
func Forget[T any](q *Questions, name health.Name[T]) { q.byName[string(name)].Forget() }

// ask returns the Check.Ask of the check with this name.
func ask[T any](_ health.Name[T], of func(Pipeline, context.Context) (T, error)) func(context.Context, health.Asked) (any, error) {
	return func(ctx context.Context, p health.Asked) (any, error) { return of(p.(Pipeline), ctx) }
}

// only is a question whose answer is that there is no error.
func only(check func(Pipeline, context.Context) error) func(Pipeline, context.Context) (struct{}, error) {
	return func(p Pipeline, ctx context.Context) (struct{}, error) { return struct{}{}, check(p, ctx) }
}

// Questions are those of a list of checks, each to one server. Make them with NewQuestions.
type Questions struct {
	checks []health.Check
	byName map[string]*Question[any]
}

// NewQuestions returns the questions of Checks, and of others, about a pipeline. ends and first are those of NewQuestion.
func NewQuestions(ends context.Context, first time.Duration, pipeline func() Pipeline, others ...health.Check) *Questions {
	q := &Questions{append(Checks(), others...), map[string]*Question[any]{}}
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
func (q *Questions) Facts(ctx context.Context) health.Facts {
	f := health.Facts{Checks: q.checks, Answers: map[string]health.Answer[any]{}}
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

// Settings implements health.Asked.
func (p Pipeline) Settings() *config.Config { return p.Config }

// Database implements health.Asked.
func (p Pipeline) Database() *store.Store { return p.Store }

// openLetters counts the open dead letters by cause.
func (p Pipeline) openLetters(ctx context.Context) (deadletters.Counts, error) {
	switch {
	case p.Kafka == nil:
		return nil, health.ErrNoKafka
	case p.OpenLetters != nil:
		return p.OpenLetters()
	}
	s, err := deadletters.NewFollower(p.DeadLetters(), slog.New(slog.DiscardHandler)).Look(ctx)
	return s.Open, err
}

// ClosesInDatabase reports whether orders are closed in the database, rather than by a service.
func (p Pipeline) ClosesInDatabase() bool {
	_, err := p.ClosingDatabase()
	return err == nil
}

// ErrClosedElsewhere says that the orders are not closed in the database, so that it does not decide.
var ErrClosedElsewhere = errors.New("a service (closer.http.url), or a Store of the program, closes the orders: ask it")

// closesElsewhere reports whether the orders are not in the database, because a service or a Store of the program has them.
func (p Pipeline) closesElsewhere() bool {
	return p.OwnStore || p.Config.Closer.Kind == config.KindHTTP && p.Config.Orders == nil
}

// ClosingDatabase returns the database in which orders are closed. The error is ErrClosedElsewhere, or health.ErrNoDatabase.
func (p Pipeline) ClosingDatabase() (*store.Store, error) {
	switch {
	case p.OwnStore || p.Config.Closer.Kind == config.KindHTTP:
		return nil, ErrClosedElsewhere
	case p.Store == nil:
		return nil, health.ErrNoDatabase
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
// it, and health.ErrNoDatabase without a database. The version is 0 if the user may not read it.
func (p Pipeline) Schema(ctx context.Context) (store.Schema, error) {
	if p.Store == nil {
		return store.Schema{}, health.ErrNoDatabase
	}
	v, err := p.Store.Schema(ctx)
	if store.Denied(err) {
		return store.Schema{}, nil
	}
	return v, err
}

// errAhead says that the tables which do not fit are those of months to come, in which no order waits.
var errAhead = errors.New("of months to come")

// monthsFit returns a *store.MappingError if tables of months do not fit the mapping, so that their orders stay open.
func (p Pipeline) monthsFit(ctx context.Context) error {
	if p.Store == nil || p.closesElsewhere() {
		return nil
	}
	_, err := p.Store.AllTables(ctx)
	err = cmp.Or(err, p.Store.SetAside(false))
	if ahead := p.Store.SetAside(true); err == nil && ahead != nil {
		err = fmt.Errorf("%w: %w", errAhead, ahead)
	}
	return err
}

// OutboxWaits is what waits for a dispatcher in an outbox, and the topic to which it goes; "": several.
type OutboxWaits struct {
	wire.OutboxBacklog
	Outbox wire.Outbox
	Topic  string
}

// Outboxes reads what waits for a dispatcher. Without Kafka nobody dispatches, and events for a webhook are its own.
func (p Pipeline) Outboxes(ctx context.Context) (all []OutboxWaits, err error) {
	switch {
	case p.Store == nil, p.OwnStore:
		return nil, health.ErrNoDatabase
	case p.Kafka == nil:
		return nil, health.ErrUnused
	}
	all = []OutboxWaits{{Outbox: wire.ScheduleOutbox}}
	if p.Config.Webhook.URL == "" {
		all = append(all, OutboxWaits{Outbox: wire.EventOutbox, Topic: p.Config.Topics.Events})
	}
	for i := range all {
		if all[i].OutboxBacklog, err = p.Store.Backlog(ctx, all[i].Outbox); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// DatabaseOffset returns by how much the database's clock is ahead of that of this machine.
func (p Pipeline) DatabaseOffset(ctx context.Context) (time.Duration, error) {
	if p.Store == nil {
		return 0, health.ErrNoDatabase
	}
	return clock.Offset(ctx, p.Store.Now)
}

const (
	// waitKnown is how long Get waits for a newer answer if there is an older one.
	waitKnown = 200 * time.Millisecond
	// askAgain is the time until a question is asked again that got no answer, if it is not asked more often.
	askAgain = 5 * time.Second
)

// Question is a question to a server. All who ask share the answers: more of them send no more requests.
// Make it with NewQuestion. It is safe for concurrent use.
type Question[T any] struct {
	ends  context.Context // of the server's answers
	every time.Duration   // an answer that is younger is not asked for again
	limit time.Duration   // of one attempt
	first time.Duration   // how long Get waits for the first answer
	ask   func(context.Context) (T, error)
	rest  func(T) time.Duration // how much longer than every an answer lasts; nil: no longer

	mu      sync.Mutex
	last    health.Answer[T]
	tried   time.Time     // when the last attempt ended
	running chan struct{} // closed when the present attempt ends; nil: none runs
}

// NewQuestion returns a question that is asked at most once in the interval every, each time for limit at most. Get waits as
// long as first for the first answer. No attempt outlives ends.
func NewQuestion[T any](ends context.Context, every, limit, first time.Duration, ask func(context.Context) (T, error)) *Question[T] {
	return &Question[T]{ends: ends, every: every, limit: limit, first: first, ask: ask}
}

// Get returns the answer. It asks first if the last answer is too old. It waits for the new one for 200 ms, or as long as NewQuestion says for the first
// one and for one that nobody has asked for in a while, and then returns the last answer. The attempt goes on, and the next Get returns its result.
func (q *Question[T]) Get(ctx context.Context) health.Answer[T] {
	q.mu.Lock()
	wait := waitKnown
	if !q.last.Known() && !q.last.Away() {
		wait = q.first
	}
	if q.running == nil {
		every := q.every
		switch {
		case q.last.Away():
			every = min(every, askAgain)
		case q.rest != nil && q.last.Known():
			every += q.rest(q.last.Value)
		}
		if time.Since(q.tried) < every || q.ends.Err() != nil {
			defer q.mu.Unlock()
			return q.last
		}
		if time.Since(q.tried) > 2*max(every, q.every) { // nobody has asked for a while
			wait = q.first
		}
		q.running = make(chan struct{})
		go q.refresh()
	}
	running := q.running
	q.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-running:
	case <-late.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.last
	if !a.Known() && !a.Away() {
		a.Err, a.Since = health.ErrNotYet, time.Now()
	}
	return a
}

// Forget makes the next Get ask again, such as after an action.
func (q *Question[T]) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tried = time.Time{}
}

func (q *Question[T]) refresh() {
	ctx, cancel := context.WithTimeout(q.ends, q.limit)
	defer cancel()
	var v T
	err := retry.Catch(func() (err error) {
		v, err = q.ask(ctx)
		return err
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		q.last = health.Answer[T]{Value: v, At: now}
	case !q.last.Away():
		q.last.Err, q.last.Since = err, now
	default:
		q.last.Err = err
	}
	q.tried = now
	close(q.running)
	q.running = nil
}
