package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// replayChunk bounds how many records are sent at once.
	replayChunk = 500
	// ReplayRate is the default rate of a replay, in records a second. A loop of the closer closes as many at a service that takes 300 ms
	// for a call of 500 orders, and fresh orders of its partition beside them.
	ReplayRate = 1000
)

// ReplayPlan says which records a replay sends again: those that were appended to Topic in [From, To). It is a snapshot of offsets:
// later appends, such as those of the replay, do not change it.
type ReplayPlan struct {
	Topic   string       `json:"topic"` // the close topic
	From    time.Time    `json:"from"`  // in whole milliseconds, as To
	To      time.Time    `json:"to"`
	Orders  []string     `json:"orders,omitempty"` // only the records of these orders; empty: all records
	Spans   []reads.Span `json:"partitions"`
	Records int64        `json:"records"` // offsets in Spans, an upper bound of what is sent
}

// ReplayResult is the outcome of Replay.
type ReplayResult struct {
	ReplayPlan
	Sent    int `json:"sent"`
	Skipped int `json:"passed"` // skipped: copies, invalid records, and those of other orders
	// Refused counts the records that Topic refuses for good, such as those that are too large with the header of a copy. They
	// are passed over. Refusals has the first, with their positions.
	Refused  int                   `json:"refused"`
	Refusals []deadletters.Refusal `json:"refusals,omitempty"`
}

// ErrReplayRefused says that a replay has sent all records but those that the topic refuses.
var ErrReplayRefused = errors.New("records are refused, and passed over")

// PlanReplay plans to send the records of a window of the close topic again: all of them, or those of some orders. On-call uses a replay
// after a closer misbehaved. The copies go to the end of the close topic. Closing an order twice changes nothing: a window that is too large,
// and a replay that is repeated after an interruption, only cost time. The error wraps health.ErrNoKafka if the process knows no Kafka.
func (p Pipeline) PlanReplay(ctx context.Context, from, to time.Time, orders ...string) (ReplayPlan, error) {
	if p.Kafka == nil {
		return ReplayPlan{}, health.ErrNoKafka
	}
	plan := ReplayPlan{Topic: p.Config.Topics.Close, Orders: orders,
		From: from.UTC().Truncate(time.Millisecond), To: orderclose.CeilMilli(to).UTC()}
	return plan, plan.measure(ctx, reads.Log{Cluster: p.Kafka})
}

// measure sets Spans and Records.
func (p *ReplayPlan) measure(ctx context.Context, log Log) (err error) {
	if !p.From.Before(p.To) {
		return fmt.Errorf("the window from %s to %s is empty", p.From.Format(time.RFC3339), p.To.Format(time.RFC3339))
	}
	p.Spans, err = log.Window(ctx, p.Topic, kafka.MomentOf(p.From), kafka.MomentOf(p.To))
	p.Records = reads.TotalLen(p.Spans)
	return err
}

// Replay sends copies of the records of the plan, with a full number of retries, at most perSecond
// a second. A copy has a mark, by which later replays and the audit skip it. progress, if not nil, is called with the number of records
// handled so far. If the topic refuses copies for good, Replay sends all others; the error wraps ErrReplayRefused. If Replay fails,
// the result still counts the records that it handled.
func Replay(ctx context.Context, log Log, plan ReplayPlan, perSecond int, progress func(done int64)) (ReplayResult, error) {
	run := replayRun{r: ReplayResult{ReplayPlan: plan}, log: log}
	chunk := min(max(perSecond/10, 1), replayChunk) // so that records flow steadily
	run.limiter = rate.NewLimiter(rate.Limit(perSecond), chunk)
	for _, span := range plan.Spans {
		run.partition = span.Partition
		err := log.ReadSpan(ctx, plan.Topic, span, func(records []wire.RawRecord) error {
			for some := range slices.Chunk(records, chunk) {
				if err := run.send(ctx, some); err != nil {
					return err
				}
				if progress != nil {
					progress(int64(run.r.Sent + run.r.Skipped + run.r.Refused))
				}
			}
			return nil
		})
		if err != nil {
			return run.r, fmt.Errorf("replay of %s/%d: %w", plan.Topic, span.Partition, err)
		}
	}
	if run.r.Refused > 0 {
		return run.r, fmt.Errorf("%w: %d, such as %s of order %q: %s. A compensator closes their orders: orderclose compensate. Or raise max.message.bytes "+
			"of %s, and replay them with --order",
			ErrReplayRefused, run.r.Refused, run.r.Refusals[0].At, run.r.Refusals[0].Key, run.r.Refusals[0].Why, plan.Topic)
	}
	return run.r, nil
}

// replayRun is one run of Replay.
type replayRun struct {
	limiter   *rate.Limiter
	log       Log
	partition int // that is read
	r         ReplayResult
}

// send sends those of the records that the plan selects.
func (run *replayRun) send(ctx context.Context, records []wire.RawRecord) error {
	var again []wire.RawRecord
	for _, raw := range records {
		if m, ok := run.r.copyOf(raw); ok {
			again = append(again, m.Raw())
		}
	}
	run.r.Skipped += len(records) - len(again)
	if err := run.limiter.WaitN(ctx, len(again)); err != nil {
		return err
	}
	if len(again) == 0 {
		return nil
	}
	sent := deadletters.Send(ctx, again, func(ctx context.Context, records []wire.RawRecord, done func(send.Result)) {
		run.log.Send(ctx, run.r.Topic, records, done)
	})
	run.r.Sent += sent.CountAcked()
	for _, refused := range sent.Refused {
		if run.r.Refused++; len(run.r.Refusals) < deadletters.MaxNamed {
			at := deadletters.Position{Partition: run.partition, Offset: refused.Record.Offset}
			run.r.Refusals = append(run.r.Refusals, deadletters.Refusal{At: at, Key: string(refused.Record.Key()), Why: refused.Err.Error()})
		}
	}
	if len(sent.Left) > 0 {
		return sent.Err
	}
	return nil
}

// copyOf returns the record to send for a record of the close topic. It returns false for records of other orders, for copies, and for
// records that cannot be read, which became dead letters when the closer read them first.
func (p *ReplayPlan) copyOf(raw wire.RawRecord) (wire.Message, bool) {
	if len(p.Orders) > 0 && !slices.Contains(p.Orders, string(raw.Key())) {
		return wire.Message{}, false
	}
	if _, err := raw.Route(); err != nil || raw.IsCopy() {
		return wire.Message{}, false
	}
	m, err := raw.Message()
	if err == nil {
		_, err = m.DecodeWithoutAttributes()
	}
	return m.Resend(), err == nil
}

const (
	// EventsRate is the default rate of events that are written again, a second: a dispatcher publishes several times as many beside them.
	EventsRate = 1000
	// eventsPage is how many events one transaction writes at most.
	eventsPage = 500
)

// EventsAgain is how many events of each type were first written in [From, To), and are written again.
type EventsAgain struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Closed   int64     `json:"closed"`
	Paid     int64     `json:"paid"`
	PaidLate int64     `json:"paid_late"` // that nobody has resolved
}

// All returns how many events there are.
func (e EventsAgain) All() int64 { return e.Closed + e.Paid + e.PaidLate }

// PlanEventsAgain counts what WriteEventsAgain would write.
func PlanEventsAgain(ctx context.Context, db *store.Store, from, to time.Time) (e EventsAgain, err error) {
	e = EventsAgain{From: from.UTC(), To: to.UTC()}
	e.Closed, e.Paid, e.PaidLate, err = db.CountEvents(ctx, from, to)
	return e, err
}

// WriteEventsAgain writes the events that were first written in [from, to) into the outbox again, at most perSecond a second, with the ids
// that they had. The events of one order are written in the order in which they were: a late payment comes last. progress is called with
// the number of events so far. After an error e has what was written; writing it again only costs the readers a duplicate.
func WriteEventsAgain(ctx context.Context, db *store.Store, from, to time.Time, perSecond int,
	progress func(done int64)) (e EventsAgain, err error) {
	e = EventsAgain{From: from.UTC(), To: to.UTC()}
	page := min(perSecond, eventsPage)
	limiter := rate.NewLimiter(rate.Limit(perSecond), page)
	written := func(n int) error {
		progress(e.All())
		for ; n > page; n -= page {
			if err := limiter.WaitN(ctx, page); err != nil {
				return err
			}
		}
		return limiter.WaitN(ctx, n)
	}
	for _, kind := range []struct {
		write func(context.Context, time.Time, time.Time, store.ReceiptKey, int) (int, store.ReceiptKey, error)
		count *int64
	}{{db.ClosedAgain, &e.Closed}, {db.PaidAgain, &e.Paid}} {
		for after, more := (store.ReceiptKey{}), true; more; more = after != (store.ReceiptKey{}) {
			var n int
			if n, after, err = kind.write(ctx, from, to, after, page); err != nil {
				return e, err
			}
			*kind.count += int64(n)
			if err := written(n); err != nil {
				return e, err
			}
		}
	}
	late, err := db.PaidLateAgain(ctx, from, to)
	e.PaidLate = int64(late)
	progress(e.All())
	return e, err
}
