package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// appenders is how many requests of a batch are in flight at once. Each request appends
// to one partition.
const appenders = 4

// probeAppender is one more, for the probe of an unavailable partition, so that the probe
// delays no other partition.
const probeAppender = appenders

const (
	// publishTimeout limits how long rows stay locked while Kafka does not answer. The
	// transactions that insert rows do not wait for these locks, but the batch
	// occupies a database connection.
	publishTimeout = 3 * time.Second
	// deadLetterTimeout limits the appends to the dead-letter topic, so that a
	// missing or full topic does not keep the other rows of the batch locked.
	deadLetterTimeout = time.Second
	// lookupTimeout limits the lookup of a topic's partitions, so that rows of other
	// topics are published within publishTimeout.
	lookupTimeout = time.Second
)

// publisher writes batches of one kind to Kafka. It belongs to one worker.
type publisher struct {
	kind            Kind
	log             Log
	deadLetterTopic string
	unavailable     *unavailable // shared by the workers of a kind
	quarantine      *quarantine  // shared by the workers of a kind
	appendFuncs     [appenders + 1]wire.AppendFunc
	logger          *slog.Logger
}

// part holds the records of a batch for one partition.
type part struct {
	topicPartition
	records []wire.RawRecord
}

// publish appends the rows of a batch to Kafka, each to its topic or to the dead-letter
// topic. Afterwards b.done holds the ids of the rows that are in Kafka.
func (p *publisher) publish(ctx context.Context, b *batch) {
	rows := p.quarantine.filter(b.rows)
	b.skip(len(b.rows) - len(rows))
	holding, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var running sync.WaitGroup
	for i, parts := range p.route(holding, b, rows) {
		if len(parts) > 0 {
			running.Go(func() { p.appendAll(holding, b, p.appendFuncs[i], parts) })
		}
	}
	running.Wait()
	if len(b.refused) > 0 {
		p.writeDeadLetters(ctx, b)
	}
}

// route makes the records of the rows and distributes them over the appenders. It
// skips rows for unavailable partitions.
func (p *publisher) route(ctx context.Context, b *batch, rows []wire.OutboxRow) (work [appenders + 1][]part) {
	topics := map[string][]wire.RawRecord{}
	for _, row := range rows {
		topic, m, err := p.kind.Route(row)
		m.Offset = row.ID // identifies the row from here on
		if err != nil {
			m.Key, m.Value = []byte(row.OrderID), row.Payload
			b.refuse(m, partition.UnreadableCause(err), err)
			continue
		}
		topics[topic] = append(topics[topic], m.Raw())
	}
	for topic, records := range topics {
		for n, records := range p.byPartition(ctx, b, topic, records) {
			to := topicPartition{topic, n}
			switch try, probe := p.unavailable.allow(to, len(work[probeAppender]) == 0); {
			case !try:
				b.skip(len(records))
			case probe:
				few := records[:min(len(records), probeRecords)]
				b.skip(len(records) - len(few))
				work[probeAppender] = []part{{to, few}}
			default:
				work[n%appenders] = append(work[n%appenders], part{to, records})
			}
		}
	}
	return work
}

// byPartition groups records by partition. If the topic is missing, it skips the records,
// as it does for an unavailable partition.
func (p *publisher) byPartition(ctx context.Context, b *batch, topic string, records []wire.RawRecord) map[int][]wire.RawRecord {
	whole := topicPartition{topic, wholeTopic}
	if try, _ := p.unavailable.allow(whole, true); !try {
		b.skip(len(records))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	grouped, err := p.log.GroupByKey(ctx, topic, records)
	if err != nil {
		p.unavailable.failed(whole, err)
		b.fail(len(records), err)
		return nil
	}
	p.unavailable.succeeded(whole)
	return grouped
}

// appendAll appends parts one after the other. Records that Kafka rejects for good are
// refused, and become dead letters later.
func (p *publisher) appendAll(ctx context.Context, b *batch, appendTo wire.AppendFunc, parts []part) {
	for _, to := range parts {
		late := ctx.Err() != nil // time ran out before this part: not the fault of its partition
		left, err := partition.AppendPart(to.records, func(records []wire.RawRecord) error {
			_, err := appendTo(ctx, to.topic, to.partition, records)
			if err == nil {
				b.ack(records)
			}
			return err
		}, func(r wire.RawRecord, err error) {
			m, err2 := r.Message()
			b.refuse(m, partition.CauseRefused, errors.Join(err, err2))
		})
		if err == nil {
			p.unavailable.succeeded(to.topicPartition)
			continue
		}
		if !late {
			p.unavailable.failed(to.topicPartition, err)
		}
		b.fail(len(left), err)
	}
}

// writeDeadLetters writes the rejected rows to the dead-letter topic. A row whose
// dead letter cannot be written stays in the outbox and is quarantined.
func (p *publisher) writeDeadLetters(ctx context.Context, b *batch) {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	letters := make([]wire.RawRecord, len(b.refused))
	for i, r := range b.refused {
		r.message.Topic = "outbox_" + string(p.kind.Outbox)
		letters[i] = partition.NewDeadLetter(r.message, Stage, r.cause, r.detail)
	}
	left, err := partition.AppendDeadLetters(ctx, p.deadLetterTopic, letters, p.log.GroupByKey, p.appendFuncs[0])
	if err != nil {
		p.logger.Error("cannot write dead letters, the rows stay in the outbox: check the dead-letter topic", "rows", len(left), "first", left[0].Offset, "err", err)
		b.fail(len(left), fmt.Errorf("append dead letters to %s: %w", p.deadLetterTopic, err))
	}
	unwritten := make(map[int64]bool, len(left))
	for _, letter := range left {
		unwritten[letter.Offset] = true
		p.quarantine.add(letter.Offset)
	}
	for _, r := range b.refused {
		if id := r.message.Offset; !unwritten[id] {
			p.logger.Error("dead letter", "id", id, "order", string(r.message.Key), "cause", r.cause, "detail", r.detail)
			b.deadLettered(id, r.cause)
		}
	}
}
