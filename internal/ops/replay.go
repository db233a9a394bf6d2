package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/retry"
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

// maxRefusals bounds how many refused records a replay lists. All are counted.
const maxRefusals = 100

// ReplayRequest selects the records of a replay: those that reached the close topic, or became dead letters, in [From, To).
type ReplayRequest struct {
	From, To    time.Time
	Orders      []string // only the records of these orders; empty: all
	DeadLetters bool
}

// ReplayPlan says which records a replay sends again: those that were appended to Topic in [From, To). It is a snapshot of offsets:
// later appends, such as those of the replay, do not change it.
type ReplayPlan struct {
	Topic   string       `json:"topic"` // the close topic, or that of dead letters
	From    time.Time    `json:"from"`  // in whole milliseconds, as To
	To      time.Time    `json:"to"`
	Orders  []string     `json:"orders,omitempty"` // only the records of these orders; empty: all records
	Spans   []reads.Span `json:"partitions"`
	Records int64        `json:"records"` // offsets in Spans, an upper bound of what is sent

	letters *deadletters.Topic // nil: the records are those of the close topic
	buckets orderclose.Buckets
}

// ReplayResult is the outcome of Replay.
type ReplayResult struct {
	ReplayPlan
	Sent    int `json:"sent"`
	Skipped int `json:"passed"` // skipped: copies, invalid records, and those of other orders
	// Refused counts the records that cannot be sent: those that the topic refuses for good, such as those that are too large
	// with the header of a copy, and dead letters of other things than orders. They are passed over. Refusals has the first.
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is a record that cannot be sent again, with the reason.
type Refusal struct {
	At    deadletters.Position `json:"at"`
	Key   string               `json:"key"`
	Cause string               `json:"cause,omitempty"` // of a dead letter
	Why   string               `json:"why"`
}

// DeadLetters returns the topic of dead letters. Its Orders are nil if this process cannot read the orders.
func (p Pipeline) DeadLetters() deadletters.Topic {
	topic := deadletters.Topic{Name: p.Config.Topics.DeadLetter, Events: p.Config.Topics.Events}
	if p.Kafka != nil {
		topic.Log = p.Kafka
	}
	if p.Store != nil && !p.closesElsewhere() {
		topic.Orders = p.Store
	}
	return topic
}

// ErrReplayRefused says that a replay has sent all records but those that the topic refuses.
var ErrReplayRefused = errors.New("records are refused, and passed over")

// PlanReplay plans to send the records of a window again: those of the close topic, after a closer misbehaved, or dead letters, after
// their cause was fixed. Closing an order twice changes nothing: a window that is too large, and a replay that is repeated after an
// interruption, only cost time. The error wraps health.ErrNoKafka if the process knows no Kafka.
func (p Pipeline) PlanReplay(ctx context.Context, r ReplayRequest) (ReplayPlan, error) {
	if p.Kafka == nil {
		return ReplayPlan{}, health.ErrNoKafka
	}
	plan := ReplayPlan{Topic: p.Config.Topics.Close, Orders: r.Orders, buckets: p.Config.Buckets,
		From: r.From.UTC().Truncate(time.Millisecond), To: orderclose.CeilMilli(r.To).UTC()}
	if r.DeadLetters {
		letters := p.DeadLetters()
		plan.Topic, plan.letters = letters.Name, &letters
	}
	return plan, plan.measure(ctx, reads.Log{Cluster: p.Kafka})
}

// Request returns what the plan was made for.
func (p *ReplayPlan) Request() ReplayRequest {
	return ReplayRequest{From: p.From, To: p.To, Orders: p.Orders, DeadLetters: p.letters != nil}
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
// a second: those of the close topic to its end, and dead letters of orders to the delay topics, from which relays take those
// that are due at once. A copy has a mark, by which later replays and the audit skip it. progress, if not nil, is called with the
// number of records handled so far. If some cannot be sent, Replay sends all others; the error wraps ErrReplayRefused. If Replay
// fails, the result still counts the records that it handled.
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
	switch {
	case run.r.Refused > 0 && plan.letters != nil:
		return run.r, fmt.Errorf("%w: %d, such as %s of order %q: %s. orderclose dlq show shows one with its record",
			ErrReplayRefused, run.r.Refused, run.r.Refusals[0].At, run.r.Refusals[0].Key, run.r.Refusals[0].Why)
	case run.r.Refused > 0:
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
	again, n, refused := map[string][]wire.RawRecord{}, 0, run.r.Refused
	for _, raw := range records {
		topic, m, ok := run.copyOf(raw)
		if ok {
			m.Offset = raw.Offset
			again[topic], n = append(again[topic], m.Raw()), n+1
		}
	}
	run.r.Skipped += len(records) - n - (run.r.Refused - refused)
	if err := run.limiter.WaitN(ctx, n); err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(again)) {
		sent := sendAll(ctx, again[topic], func(ctx context.Context, records []wire.RawRecord, done func(send.Result)) {
			run.log.Send(ctx, topic, records, done)
		})
		run.r.Sent += sent.CountAcked()
		for _, refused := range sent.Refused {
			run.refuse(Refusal{At: run.at(refused.Record), Key: string(refused.Record.Key()), Why: refused.Err.Error()})
		}
		if len(sent.Left) > 0 {
			return sent.Err
		}
	}
	return nil
}

func (run *replayRun) at(r wire.RawRecord) deadletters.Position {
	return deadletters.Position{Partition: run.partition, Offset: r.Offset}
}

func (run *replayRun) refuse(r Refusal) {
	if run.r.Refused++; len(run.r.Refusals) < maxRefusals {
		run.r.Refusals = append(run.r.Refusals, r)
	}
}

// sendTimeout bounds an append: a person waits for the command.
const sendTimeout = 30 * time.Second

// sendAll appends records with start, and what is left again while its error may pass, for 30 s.
func sendAll(ctx context.Context, records []wire.RawRecord,
	start func(ctx context.Context, records []wire.RawRecord, done func(send.Result))) (all send.Result) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	for {
		r := send.Wait(func(done func(send.Result)) { start(ctx, records, done) })
		if ctx.Err() != nil {
			r.Err = cmp.Or(all.Err, r.Err)
		}
		r.Acked, r.Refused = append(all.Acked, r.Acked...), append(all.Refused, r.Refused...)
		if all, records = r, r.Left; len(records) == 0 || !kafka.Passes(r.Err) || !retry.Sleep(ctx, r.Pause) {
			return all
		}
	}
}

// copyOf returns the record to send for a record of the plan, and its topic. It returns false for records of other orders, and refuses
// dead letters that cannot be sent. Of the close topic it returns false for copies, and for records that cannot be read, which
// became dead letters when the closer read them first.
func (run *replayRun) copyOf(raw wire.RawRecord) (topic string, m wire.Message, ok bool) {
	p := &run.r.ReplayPlan
	if len(p.Orders) > 0 && !slices.Contains(p.Orders, string(raw.Key())) {
		return "", m, false
	}
	if p.letters != nil {
		m, _ = raw.Message() // an invalid record has only its offset
		l := deadletters.Read(run.partition, m)
		topic, m, refusal := p.letters.Again(l, p.buckets, time.Now())
		if refusal != "" {
			run.refuse(Refusal{At: l.At, Key: l.Key, Cause: l.Cause, Why: refusal})
		}
		return topic, m, refusal == ""
	}
	if _, err := raw.Route(); err != nil || raw.IsCopy() {
		return "", m, false
	}
	m, err := raw.Message()
	if err == nil {
		_, err = m.DecodeWithoutAttributes()
	}
	return p.Topic, m.Resend(), err == nil
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
