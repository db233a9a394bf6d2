package ops

import (
	"context"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ClockSkewWarning is the smallest difference between two clocks that doctor, console and log report.
const ClockSkewWarning = 250 * time.Millisecond

// factTimeout bounds the reading of what processes have announced.
const factTimeout = 15 * time.Second

// Questions are those of the verdict, each to one server. Console, status and doctor ask the same.
type Questions struct {
	pipeline func() Pipeline

	Status  *Question[Status]
	Overdue *Question[OverdueOrders]
	Writes  *Question[struct{}]      // its error is why a close cannot be written
	Lock    *Question[struct{}]      // its error is why the lock of the sweep cannot be taken
	Offset  *Question[time.Duration] // of the database's clock
	Ahead   *Question[time.Duration] // of the database's clock, of that of the brokers
	Schema  *Question[store.Schema]
	Pauses  *Question[[]wire.Pause]
	Sweeps  *Question[Sweeps]
	Topics  *Question[TopicsPlan]
	Letters *Question[deadletters.Counts] // that are pending, by cause
	Config  *Question[struct{}]           // its error is that of topics.yaml
	Late    *Question[store.LateSummary]
}

// NewQuestions returns the questions about a pipeline. ends and first are those of NewQuestion. A status costs Kafka some requests for each
// partition: with one each 5 s an open page cost 1.7 % of a core while a million records waited (make bench-console).
func NewQuestions(ends context.Context, first time.Duration, pipeline func() Pipeline) *Questions {
	const soon, often, seldom, limit = 5 * time.Second, 10 * time.Second, time.Minute, 30 * time.Second
	var before Status
	var all *Questions
	all = &Questions{
		pipeline: pipeline,
		Status: NewQuestion(ends, often, limit, first, func(ctx context.Context) (Status, error) {
			s, err := pipeline().Status(ctx)
			if _, late := s.Worst(frozenAfter); late && before.At.IsZero() && retry.Sleep(ctx, secondLook) {
				before = s
				s, err = pipeline().Status(ctx)
			}
			s.Follow(before)
			before = s
			return s, err
		}),
		Overdue: NewQuestion(ends, soon, soon, first, func(ctx context.Context) (OverdueOrders, error) { return pipeline().overdueExplained(ctx) }),
		Writes: NewQuestion(ends, soon, often, first, only(func(ctx context.Context) error {
			err := pipeline().Writable(ctx)
			if err != nil {
				all.Overdue.Forget() // whether the database answers at all
			}
			return err
		})),
		Lock: NewQuestion(ends, soon, soon, first, only(func(ctx context.Context) error { return pipeline().Lockable(ctx) })),
		Offset: NewQuestion(ends, seldom, soon, first, func(ctx context.Context) (time.Duration, error) {
			p := pipeline()
			if p.Store == nil {
				return 0, ErrNoDatabase
			}
			return DatabaseOffset(ctx, p.Store.Now)
		}),
		Ahead:  NewQuestion(ends, seldom, limit, first, func(ctx context.Context) (time.Duration, error) { return pipeline().DatabaseAhead(ctx) }),
		Schema: NewQuestion(ends, 5*seldom, often, first, func(ctx context.Context) (store.Schema, error) { return pipeline().Schema(ctx) }),
		Pauses: NewQuestion(ends, soon, often, first, func(ctx context.Context) ([]wire.Pause, error) {
			kept, err := pipeline().Pauser()
			if err != nil {
				return nil, err
			}
			return kept.Pauses(ctx)
		}),
		Sweeps:  NewQuestion(ends, often, limit, first, func(ctx context.Context) (Sweeps, error) { return pipeline().Sweeps(ctx, 0) }),
		Topics:  NewQuestion(ends, seldom, limit, first, func(ctx context.Context) (TopicsPlan, error) { return pipeline().TopicsPlan(ctx) }),
		Letters: NewQuestion(ends, 0, limit, first, func(ctx context.Context) (deadletters.Counts, error) { return pipeline().pendingLetters(ctx) }),
		Config: NewQuestion(ends, often, soon, first, only(func(context.Context) error {
			if broken := pipeline().Broken; broken != nil {
				return broken()
			}
			return nil
		})),
		Late: NewQuestion(ends, often, soon, first, func(ctx context.Context) (store.LateSummary, error) { return pipeline().CountLate(ctx) }),
	}
	all.Overdue.rest = func(o OverdueOrders) time.Duration {
		if o.Orders+o.Paused > 0 {
			return 0
		}
		return often
	}
	return all
}

// secondLook is the time between the first two statuses, by which Follow sees whether a backlog shrinks.
const secondLook = time.Second

// only is a question whose answer is that there is no error.
func only(check func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, check(ctx) }
}

// Facts asks all questions at once.
func (q *Questions) Facts(ctx context.Context) Facts {
	c := q.pipeline().Config
	f := Facts{SweepPeriod: c.Compensator.Period, Pays: c.Closer.AsksPayment()}
	var all sync.WaitGroup
	all.Go(func() { f.Status = q.Status.Get(ctx) })
	all.Go(func() { f.Overdue = q.Overdue.Get(ctx) })
	all.Go(func() { f.Writes = q.Writes.Get(ctx) })
	all.Go(func() { f.Lock = q.Lock.Get(ctx) })
	all.Go(func() { f.Offset = q.Offset.Get(ctx) })
	all.Go(func() { f.Ahead = q.Ahead.Get(ctx) })
	all.Go(func() { f.Schema = q.Schema.Get(ctx) })
	all.Go(func() { f.Pauses = q.Pauses.Get(ctx) })
	all.Go(func() { f.Sweeps = q.Sweeps.Get(ctx) })
	all.Go(func() { f.Topics = q.Topics.Get(ctx) })
	all.Go(func() { f.Letters = q.Letters.Get(ctx) })
	all.Go(func() { f.Config = q.Config.Get(ctx) })
	all.Go(func() { f.Late = q.Late.Get(ctx) })
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
	return p.Store != nil && !p.OwnStore && p.Config.Closer.Kind != config.KindHTTP
}

// Writable tries the writes of a close, and rolls them back. It returns nil if orders are not closed in
// the database. A user who may only read learns at least whether the server is read-only.
func (p Pipeline) Writable(ctx context.Context) error {
	if !p.ClosesInDatabase() {
		return nil
	}
	return p.Store.TakesWrites(ctx)
}

// Lockable returns an error if the lock of the sweep cannot be taken, because its server does not answer,
// Redis refuses writes or the database gives no lock, or if its key in Redis never expires (compensator.ErrLockStuck).
// It returns nil if the server is not named, and if the lock is in a database that does not answer, which other
// questions report.
func (p Pipeline) Lockable(ctx context.Context) error {
	c := p.Config.Compensator.Lock
	lock, err := clients.Clients{Store: p.Store, Redis: p.Redis}.SweepLock(c, "", config.Never)
	if checked, ok := lock.(interface{ Available(context.Context) error }); ok && err == nil {
		err = checked.Available(ctx)
	}
	if c.Kind == config.LockDatabase && store.ConnectionFault(err) == store.FaultUnavailable {
		return nil
	}
	return err
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

// DatabaseAhead returns by how much the database's clock is ahead of that of the brokers, as processes have measured it
// in the last minutes; 0 if it is less than half a second, or nobody has measured it.
func (p Pipeline) DatabaseAhead(ctx context.Context) (time.Duration, error) {
	if err := p.reachKafka(ctx); err != nil {
		return 0, err
	}
	return p.Kafka.DatabaseAhead(ctx, p.Config.Topics.Control)
}

// DatabaseOffset returns the smallest possible offset of a clock from that of this machine,
// measured by the fastest of three answers.
func DatabaseOffset(ctx context.Context, now func(context.Context) (time.Time, error)) (offset time.Duration, err error) {
	best := time.Duration(-1)
	for range 3 {
		sent := time.Now()
		at, err := now(ctx)
		answered := time.Now()
		if err != nil {
			return 0, err
		}
		if trip := answered.Sub(sent); best < 0 || trip < best {
			best, offset = trip, leastOffset(sent, answered, at)
		}
	}
	return offset, nil
}

// leastOffset returns the smallest possible offset of a clock that showed at, cut to milliseconds,
// at some time between sent and answered. It is a pure function.
func leastOffset(sent, answered, at time.Time) time.Duration {
	switch most := at.Add(time.Millisecond); {
	case at.After(answered):
		return at.Sub(answered)
	case most.Before(sent):
		return most.Sub(sent)
	}
	return 0
}
