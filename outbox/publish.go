package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// appenders is how many requests of a batch are in flight at once. Each request appends
// to one partition.
const appenders = 4

// probeAppender is one more, for the probe of an unavailable partition, so that the probe
// delays no other partition.
const probeAppender = appenders

const (
	// deadLetterTimeout limits the appends to the dead-letter topic, so that a
	// missing or full topic does not keep the other rows of the batch locked.
	deadLetterTimeout = time.Second
	// lookupTimeout limits the lookup of a topic's partitions, so that rows of other
	// topics are published within publishTimeout.
	lookupTimeout = time.Second
)

// Causes of dead letters.
const (
	causeUnreadable = "unreadable" // no record can be made of the row
	causeRefused    = "refused"    // Kafka rejects the record for good: too large, or invalid
)

// causeOf returns the cause of the dead letter for a row of which no record can be
// made. It is the cause that a relay or closer would use, if there is one.
func causeOf(err error) string {
	if why := (*wire.RecordError)(nil); errors.As(err, &why) {
		return why.Reason.Error()
	}
	return causeUnreadable
}

// worker dispatches one batch at a time. It belongs to one goroutine.
type worker struct {
	*Dispatcher
	ctx         context.Context
	kind        Kind
	quarantine  *quarantine // shared by the workers of a kind, like the next two fields
	unavailable *unavailable
	skipped     *skippedRows
	next        int64 // id after which the next batch is read; 0: skipped.from decides
	walk        walk  // used by the leader only
	undeleted   undeleted
	logger      *slog.Logger
	appendFuncs [appenders + 1]wire.AppendFunc
}

func (d *Dispatcher) newWorker(ctx context.Context, k Kind, q *quarantine, u *unavailable, s *skippedRows) *worker {
	w := &worker{Dispatcher: d, ctx: ctx, kind: k, quarantine: q, unavailable: u, skipped: s, undeleted: undeleted{}, logger: d.o.Logger.With("outbox", k.Outbox)}
	for i := range w.appendFuncs {
		w.appendFuncs[i] = d.o.Log.Idempotent(nil, d.o.Metrics.Repeated)
	}
	return w
}

// dispatchNew dispatches one batch of new rows, or of all rows if none are skipped. It
// returns how many rows could be tried, or a full batch if further rows may follow
// behind skipped ones.
func (w *worker) dispatchNew() (found int, err error) {
	if w.next == 0 {
		w.next = w.skipped.from()
	}
	from := w.next
	b, n, err := w.dispatch(from)
	w.next = 0
	if b == nil || err != nil {
		return n, err
	}
	w.skipped.noteBatch(b.highestSkipped(), time.Now())
	if n == w.o.Batch && (b.skippedCount > 0 || from > 0) {
		w.next = b.last
		return n, b.stuck()
	}
	return b.tried, b.stuck()
}

// dispatchSkipped dispatches one batch of the skipped rows, if there are any and the
// pause has passed. It returns how many rows could be tried.
func (w *worker) dispatchSkipped() (found int, err error) {
	from, on := w.skipped.resume(&w.walk, time.Now())
	if !on {
		return 0, nil
	}
	b, n, err := w.dispatch(from)
	if err != nil {
		return 0, err
	}
	if b == nil {
		b = &batch{last: from}
	}
	w.skipped.noteWalked(&w.walk, b.last, b.highestSkipped(), b.tried > 0, n < w.o.Batch, time.Now())
	return b.tried, b.stuck()
}

// dispatch dispatches up to one batch of rows with ids above from. It returns the
// batch, nil if there are no rows, and the number of rows that were read. The error
// is the database's. If the rows that were published then could not be deleted, undeleted
// holds them.
func (w *worker) dispatch(from int64) (b *batch, n int, err error) {
	ctx, cancel := retry.Linger(w.ctx, stopTimeout)
	defer cancel()
	n, err = w.o.Store.Dispatch(ctx, w.kind.Outbox, from, w.o.Batch, func(ctx context.Context, rows []wire.OutboxRow) []int64 {
		b = &batch{worker: w, rows: rows, last: rows[len(rows)-1].ID}
		if b.done = w.undeleted.idsIn(rows); len(b.done) > 0 {
			b.tried = len(rows)
			return b.done
		}
		try := w.quarantine.filter(rows)
		b.tried, b.skippedCount = len(try), len(rows)-len(try)
		return b.publish(ctx, try)
	})
	if b == nil {
		return nil, n, err
	}
	for _, cause := range b.deadCauses {
		w.o.Metrics.DeadLettered(Stage, cause)
	}
	if err != nil {
		w.undeleted.add(b.rows, b.done)
		return b, n, err
	}
	clear(w.undeleted)
	w.o.Metrics.Dispatched(w.kind.Outbox, len(b.done)-len(b.deadCauses))
	return b, n, nil
}

// highestSkipped returns the highest id of the skipped rows; 0 if no row was skipped.
func (b *batch) highestSkipped() int64 {
	if b.skippedCount == 0 {
		return 0
	}
	done := setOf(b.done)
	for _, row := range slices.Backward(b.rows) {
		if !done[row.ID] {
			return row.ID
		}
	}
	return 0
}

// stuck returns the error of a batch of which Kafka accepted no record.
func (b *batch) stuck() error {
	if len(b.done) > 0 {
		return nil
	}
	return b.err
}

// batch is a set of rows that is being published.
type batch struct {
	*worker
	rows []wire.OutboxRow // lowest id first
	last int64            // highest id of rows

	mu           sync.Mutex // protects the fields below while appenders run
	tried        int        // rows that were not skipped
	skippedCount int        // rows that were skipped: they could be written neither to their topic nor to the dead-letter topic
	done         []int64    // ids of rows that are in Kafka, as records or as dead letters
	err          error      // last error that a retry may fix
	refused      []dead     // rows to write to the dead-letter topic
	deadCauses   []string   // causes of the dead letters that were written
}

// dead is a record that is given up, with the cause.
type dead struct {
	message       wire.Message
	cause, detail string
}

// publish appends the rows to Kafka and returns the ids of those that were acked.
func (b *batch) publish(ctx context.Context, rows []wire.OutboxRow) []int64 {
	holding, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	work := b.route(holding, rows)
	var running sync.WaitGroup
	for i, requests := range work {
		if len(requests) > 0 {
			running.Go(func() { b.appendAll(holding, b.appendFuncs[i], requests) })
		}
	}
	running.Wait()
	b.writeDeadLetters(ctx)
	return b.done
}

// route makes the records of the rows and distributes them over the appenders. It
// skips rows for unavailable partitions.
func (b *batch) route(ctx context.Context, rows []wire.OutboxRow) (work [appenders + 1][]request) {
	topics := map[string][]wire.RawRecord{}
	for _, row := range rows {
		topic, m, err := b.kind.Route(row)
		m.Offset = row.ID // identifies the row from here on
		if err != nil {
			m.Key, m.Value = []byte(row.OrderID), row.Payload
			b.refused = append(b.refused, dead{m, causeOf(err), err.Error()})
			continue
		}
		topics[topic] = append(topics[topic], m.Raw())
	}
	for topic, records := range topics {
		for p, part := range b.byPartition(ctx, topic, records) {
			r := request{topicPartition{topic, p}, part}
			switch try, probe := b.unavailable.allow(r.topicPartition, len(work[probeAppender]) == 0); {
			case !try:
				b.skip(len(part))
			case probe:
				r.records = part[:min(len(part), probeRecords)]
				b.skip(len(part) - len(r.records))
				work[probeAppender] = []request{r}
			default:
				work[p%appenders] = append(work[p%appenders], r)
			}
		}
	}
	return work
}

// byPartition groups records by partition. If the topic is missing, it skips the records,
// as it does for an unavailable partition.
func (b *batch) byPartition(ctx context.Context, topic string, records []wire.RawRecord) map[int][]wire.RawRecord {
	whole := topicPartition{topic, wholeTopic}
	if try, _ := b.unavailable.allow(whole, true); !try {
		b.skip(len(records))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	grouped, err := b.o.Log.GroupByKey(ctx, topic, records)
	if err == nil {
		if b.unavailable.succeeded(whole) {
			b.logger.Info("partition lookup works again", "topic", topic)
		}
		return grouped
	}
	if since, report := b.unavailable.failed(whole); report {
		b.logger.Warn("partition lookup failed, rows for this topic wait", "topic", topic, "failing_since", since, "err", err)
	}
	b.err = err
	b.skip(len(records))
	return nil
}

// skip counts rows as skipped because their partition is unavailable.
func (b *batch) skip(rows int) {
	b.skippedCount += rows
	b.tried -= rows
}

// request is a set of records for one partition.
type request struct {
	topicPartition
	records []wire.RawRecord
}

// appendAll appends requests one after the other.
func (b *batch) appendAll(ctx context.Context, appendTo wire.AppendFunc, requests []request) {
	for _, r := range requests {
		late := ctx.Err() // time ran out before this request: not the fault of its partition
		left, err := b.appendRequest(ctx, appendTo, r)
		if err == nil {
			if b.unavailable.succeeded(r.topicPartition) {
				b.logger.Info("a partition accepts records again", "topic", r.topic, "partition", r.partition)
			}
			continue
		}
		if late == nil {
			if since, report := b.unavailable.failed(r.topicPartition); report {
				b.logger.Warn("append to a partition failed, its rows stay in the outbox", "topic", r.topic, "partition", r.partition, "failing_since", since, "err", err)
			}
		}
		b.mu.Lock()
		b.err = err
		b.skip(left)
		b.mu.Unlock()
	}
}

// appendRequest appends a request in as many parts as its size needs. If a part fails, it
// returns how many records were not appended.
func (b *batch) appendRequest(ctx context.Context, appendTo wire.AppendFunc, r request) (left int, err error) {
	for rest := r.records; len(rest) > 0; {
		n := wire.Fitting(rest)
		if err := b.appendOrSplit(ctx, appendTo, request{r.topicPartition, rest[:n:n]}); err != nil {
			return len(rest), err
		}
		rest = rest[n:]
	}
	return 0, nil
}

// appendOrSplit appends one request. If Kafka rejects it for good, appendOrSplit
// splits it in halves, down to the rejected records, which become dead letters. It
// returns only errors that a retry may fix.
func (b *batch) appendOrSplit(ctx context.Context, appendTo wire.AppendFunc, r request) error {
	_, err := appendTo(ctx, r.topic, r.partition, r.records)
	definite := errors.Is(err, wire.ErrRefused)
	switch half := len(r.records) / 2; {
	case err != nil && !definite:
		return err
	case err != nil && half > 0:
		if err := b.appendOrSplit(ctx, appendTo, request{r.topicPartition, r.records[:half:half]}); err != nil {
			return err
		}
		return b.appendOrSplit(ctx, appendTo, request{r.topicPartition, r.records[half:]})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		for _, record := range r.records {
			b.done = append(b.done, record.Offset)
		}
		return nil
	}
	m, err2 := r.records[0].Message()
	b.refused = append(b.refused, dead{m, causeRefused, errors.Join(err, err2).Error()})
	return nil
}

// writeDeadLetters writes the rejected rows to the dead-letter topic. A row whose
// dead letter cannot be written stays in the outbox and is quarantined.
func (b *batch) writeDeadLetters(ctx context.Context) {
	if len(b.refused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	letters := make([]wire.RawRecord, len(b.refused))
	by := make(map[int64]dead, len(b.refused))
	for i, d := range b.refused {
		id := d.message.Offset
		d.message.Topic = "outbox_" + string(b.kind.Outbox)
		letter := wire.DeadLetter(d.message, Stage, d.cause, d.detail)
		letter.Offset = id
		letters[i], by[id] = letter.Raw(), d
	}
	grouped, err := b.o.Log.GroupByKey(ctx, b.o.DeadLetterTopic, letters)
	if err != nil {
		b.deadLettersFailed(letters, err)
		return
	}
	for p, part := range grouped {
		for len(part) > 0 {
			n := wire.Fitting(part)
			_, err := b.appendFuncs[0](ctx, b.o.DeadLetterTopic, p, part[:n:n])
			if err != nil {
				b.deadLettersFailed(part, err)
				break
			}
			for _, letter := range part[:n] {
				d := by[letter.Offset]
				b.logger.Error("dead letter", "id", letter.Offset, "order", string(d.message.Key), "cause", d.cause, "detail", d.detail)
				b.done = append(b.done, letter.Offset)
				b.deadCauses = append(b.deadCauses, d.cause)
			}
			part = part[n:]
		}
	}
}

// deadLettersFailed quarantines rows whose dead letters could not be written.
func (b *batch) deadLettersFailed(letters []wire.RawRecord, err error) {
	b.err = fmt.Errorf("append dead letters to %s: %w", b.o.DeadLetterTopic, err)
	b.logger.Error("cannot write dead letters, the rows stay in the outbox: check the dead-letter topic", "rows", len(letters), "first", letters[0].Offset, "err", err)
	b.skip(len(letters))
	for _, letter := range letters {
		b.quarantine.add(letter.Offset)
	}
}
