package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// publishTimeout limits how long rows stay locked while Kafka does not answer. The transactions that insert rows do not wait
	// for these locks, but the batch occupies a database connection. A look-up and a request fit if each answer takes 3 s, and a
	// process has 10 s to stop.
	publishTimeout = 8 * time.Second
	// deadLetterTimeout limits the appends to the dead-letter topic, so that a
	// missing or full topic does not keep the other rows of the batch locked.
	deadLetterTimeout = time.Second
)

// publish appends the rows of a batch to Kafka, each to its topic or to the dead-letter
// topic. Afterwards b.done holds the ids of the rows that are in Kafka. Rows that Kafka rejects for good become dead letters.
func (w *worker) publish(ctx context.Context, b *rowBatch) {
	holding, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	defer b.endTraces()
	do := w.o.Kafka.Send
	if w.kind.keyed {
		do = w.o.Kafka.SendByKey
	}
	w.send(holding, do, w.route(b, w.quarantine.filter(b.rows)), func(sent send.Result) {
		for _, acked := range sent.Acked {
			b.ack(acked.Records)
		}
		for _, r := range sent.Refused {
			m, err := r.Record.Message()
			b.refuse(m, partition.CauseRefused, errors.Join(r.Err, err)) //mutant:rejected-row-lost
		}
		b.err = cmp.Or(sent.Err, b.err)
	})
	w.compareClocks(b)
	if len(b.refused) > 0 {
		w.writeDeadLetters(ctx, b)
	}
}

// compareClocks compares the clocks of those who wrote the published rows with that of the database.
func (w *worker) compareClocks(b *rowBatch) {
	if w.o.Skews == nil || w.kind.outbox != wire.ScheduleOutbox {
		return
	}
	published := setOf(b.done)
	for _, row := range b.rows {
		created, ok := wire.QuickCreated(row.Payload)
		if !published[row.ID] || ok && clock.Agree(created, row.Created) {
			continue
		}
		if o, err := row.Order(); err == nil {
			w.o.Skews.Compare(clock.AtOutbox, o, row.Created)
			if !o.Due.After(row.Created) {
				w.logger.Warn("an order was due when its row was inserted: its checkout has a wrong clock, or its due time was moved", "order", o.ID,
					"created", o.CreatedAt, "due", o.Due, "inserted", row.Created)
			}
		}
	}
}

// send appends records by topic, with do, and calls each with each result.
func (w *worker) send(ctx context.Context, do func(context.Context, string, []wire.RawRecord, func(send.Result)),
	topics map[string][]wire.RawRecord, each func(send.Result)) {
	send.All(topics, func(topic string, records []wire.RawRecord, done func(send.Result)) { do(ctx, topic, records, done) }, func(r send.Result) {
		w.metrics.Repeated(r.Repeated)
		each(r)
	})
}

// route makes the records of the rows, by topic. Rows for a topic that rests because it fails are left out.
func (w *worker) route(b *rowBatch, rows []wire.OutboxRow) map[string][]wire.RawRecord {
	topics := map[string][]wire.RawRecord{}
	for _, row := range rows {
		m := wire.Message{Key: []byte(row.OrderID), Value: row.Payload, Offset: row.ID}
		if row.TooLarge > 0 {
			b.refuse(m, partition.CauseRefused, fmt.Errorf("the payload has %d bytes, at most %d are read", row.TooLarge, wire.MaxRecordBytes))
			continue
		}
		topic, made, err := w.kind.route(row, w.o.Kafka)
		if err != nil {
			made.Key, made.Value, made.Offset = m.Key, m.Value, m.Offset
			b.refuse(made, partition.UnreadableCause(err), err)
			continue
		}
		m = made
		m.Offset = row.ID // identifies the row from here on
		if since, wait := w.o.Kafka.Failing(topic); wait > 0 {
			b.err = cmp.Or(b.err, fmt.Errorf("topic %s has accepted nothing since %s", topic, since.UTC().Format(time.RFC3339)))
			continue
		}
		b.trace(w.tracer, w.kind.span, &m)
		topics[topic] = append(topics[topic], m.Raw())
	}
	return topics
}

// writeDeadLetters writes the rejected rows to the dead-letter topic. A row whose
// dead letter cannot be written stays in the outbox and is quarantined.
func (w *worker) writeDeadLetters(ctx context.Context, b *rowBatch) {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	letters := make([]wire.RawRecord, len(b.refused))
	for i, r := range b.refused {
		r.message.Topic = "outbox_" + string(w.kind.outbox)
		letters[i] = partition.NewDeadLetter(r.message, Stage, r.cause, r.detail)
	}
	written := map[int64]bool{}
	w.send(ctx, w.o.Kafka.Send, map[string][]wire.RawRecord{w.o.DeadLetterTopic: letters}, func(sent send.Result) {
		for _, acked := range sent.Acked {
			for _, letter := range acked.Records {
				written[letter.Offset] = true
			}
		}
		for _, r := range sent.Refused {
			sent.Left, sent.Err = append(sent.Left, r.Record), r.Err
		}
		if sent.Err != nil {
			w.logger.Error("cannot write dead letters, the rows stay in the outbox: check the dead-letter topic",
				"rows", len(sent.Left), "first", sent.Left[0].Offset, "err", sent.Err)
			b.err = fmt.Errorf("append dead letters to %s: %w", w.o.DeadLetterTopic, sent.Err)
		}
	})
	for _, r := range b.refused {
		id := r.message.Offset
		if !written[id] {
			w.quarantine.add(id)
			continue
		}
		w.logger.Error("dead letter", "id", id, "order", string(r.message.Key), "cause", r.cause, "detail", r.detail)
		b.done, b.deadCauses = append(b.done, id), append(b.deadCauses, r.cause)
	}
}

const (
	// quarantineTime is how long a row is skipped that could be written neither to its
	// topic nor to the dead-letter topic.
	quarantineTime = 30 * time.Second
	// maxQuarantined limits how many such rows are remembered. Further rows are tried
	// each time they are read.
	maxQuarantined = 10_000
)

// quarantine holds the ids of rows that are skipped for a while. It is safe for
// concurrent use.
type quarantine struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func (a *quarantine) add(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) < maxQuarantined {
		a.until[id] = time.Now().Add(quarantineTime)
	}
}

// filter returns rows without the quarantined ones.
func (a *quarantine) filter(rows []wire.OutboxRow) []wire.OutboxRow {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) == 0 {
		return rows
	}
	now := time.Now()
	maps.DeleteFunc(a.until, func(_ int64, until time.Time) bool { return !now.Before(until) })
	var left []wire.OutboxRow
	for _, r := range rows {
		if _, is := a.until[r.ID]; !is {
			left = append(left, r)
		}
	}
	return left
}
