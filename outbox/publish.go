package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// lanes is over how many requests at once a batch is spread: each partition is a
// request of its own.
const lanes = 4

// trialLane is one more, for a partition that is shunned: it holds up no other.
const trialLane = lanes

const (
	// buryTime bounds the appends to the dead-letter topic, so that a topic that is
	// missing or full does not keep the other rows of a batch locked.
	buryTime = time.Second
	// routeTime bounds how long it may take to find out which partitions a topic has, so
	// that the rows of another topic are published within holdTime.
	routeTime = time.Second
)

// Causes of dead letters.
const (
	causeUnreadable = "unreadable" // nobody can make a record of the row
	causeRefused    = "refused"    // Kafka will not take the record: too large, or invalid
)

// causeOf is why a row was given up of which no record can be made: as a relay or
// a closer would call it, if that is known.
func causeOf(err error) string {
	if why := (*orderclose.RecordError)(nil); errors.As(err, &why) {
		return why.Reason.Error()
	}
	return causeUnreadable
}

// worker has one batch in hand at a time. It belongs to one goroutine.
type worker struct {
	*Dispatcher
	ctx     context.Context
	kind    Kind
	aside   *aside // shared by the workers of a kind, as what follows
	shunned *shunned
	seen    *seen
	at      int64 // where to look on; 0: where seen says
	walk    walk  // the leader's
	kept    kept
	logger  *slog.Logger
	appends [lanes + 1]orderclose.AppendFunc
}

func (d *Dispatcher) newWorker(ctx context.Context, k Kind, set *aside, places *shunned, s *seen) *worker {
	w := &worker{Dispatcher: d, ctx: ctx, kind: k, aside: set, shunned: places, seen: s, kept: kept{}, logger: d.o.Logger.With("outbox", k.Outbox)}
	for i := range w.appends {
		w.appends[i] = d.o.Log.Idempotent(nil, d.o.Metrics.Repeated)
	}
	return w
}

// turn dispatches one batch of the rows that are new, or of all if none were left. It
// returns how many rows were there to be tried, or as many as a batch has if there may be
// others behind rows that were left.
func (w *worker) turn() (found int, err error) {
	if w.at == 0 {
		w.at = w.seen.from()
	}
	from := w.at
	b, n, err := w.dispatch(from)
	w.at = 0
	if b == nil || err != nil {
		return n, err
	}
	w.seen.saw(b.highestLeft(), time.Now())
	if n == w.o.Batch && (b.left > 0 || from > 0) {
		w.at = b.last
		return n, b.stuck()
	}
	return b.tried, b.stuck()
}

// walkOn dispatches one batch of the rows that were left, if there are any and it is
// time to. It returns how many rows were there to be tried.
func (w *worker) walkOn() (found int, err error) {
	from, on := w.seen.begin(&w.walk, time.Now())
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
	w.seen.walked(&w.walk, b.last, b.highestLeft(), b.tried > 0, n < w.o.Batch, time.Now())
	return b.tried, b.stuck()
}

// dispatch hands over the rows above an id, and returns what became of them, nil if
// there are none, and how many there were. The error is the database's; what was
// published by then is deleted all the same, if the database can.
func (w *worker) dispatch(from int64) (b *batch, n int, err error) {
	ctx, cancel := partition.Linger(w.ctx, lingerTime)
	defer cancel()
	n, err = w.o.Store.Dispatch(ctx, w.kind.Outbox, from, w.o.Batch, func(ctx context.Context, rows []orderclose.OutboxRow) []int64 {
		b = &batch{worker: w, rows: rows, last: rows[len(rows)-1].ID}
		if b.done = w.kept.among(rows); len(b.done) > 0 {
			b.tried = len(rows)
			return b.done
		}
		try := w.aside.leave(rows)
		b.tried, b.left = len(try), len(rows)-len(try)
		return b.publish(ctx, try)
	})
	if b == nil {
		return nil, n, err
	}
	for _, cause := range b.buried {
		w.o.Metrics.DeadLettered(Stage, cause)
	}
	if err != nil {
		w.kept.add(b.rows, b.done)
		return b, n, err
	}
	clear(w.kept)
	w.o.Metrics.Dispatched(w.kind.Outbox, len(b.done)-len(b.buried))
	return b, n, nil
}

// highestLeft is the highest id of the rows that were left; 0: none were.
func (b *batch) highestLeft() int64 {
	if b.left == 0 {
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

// stuck is the error of a batch of which Kafka took nothing.
func (b *batch) stuck() error {
	if len(b.done) > 0 {
		return nil
	}
	return b.err
}

// batch is rows on their way to Kafka.
type batch struct {
	*worker
	rows []orderclose.OutboxRow // lowest id first
	last int64                  // the highest id

	mu      sync.Mutex // of what follows, while lanes run
	tried   int        // rows that were not left
	left    int        // rows that can neither be published nor made dead letters of for now
	done    []int64    // ids of rows that Kafka has, published or as dead letters
	err     error      // the last that another try may mend
	refused []dead     // to become dead letters
	buried  []string   // causes of those that did
}

// dead is a record that nobody will ever take, and why.
type dead struct {
	message       orderclose.Message
	cause, detail string
}

// publish brings rows to Kafka and returns the ids of those that are there.
func (b *batch) publish(ctx context.Context, rows []orderclose.OutboxRow) []int64 {
	holding, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	work := b.route(holding, rows)
	var running sync.WaitGroup
	for i, requests := range work {
		if len(requests) > 0 {
			running.Go(func() { b.lane(holding, b.appends[i], requests) })
		}
	}
	running.Wait()
	b.bury(ctx)
	return b.done
}

// route makes the rows' records and says what each lane has to append. What is for
// shunned partitions is left.
func (b *batch) route(ctx context.Context, rows []orderclose.OutboxRow) (work [lanes + 1][]request) {
	topics := map[string][]orderclose.RawRecord{}
	for _, row := range rows {
		topic, m, err := b.kind.Route(row)
		m.Offset = row.ID // which is how the row is known from here on
		if err != nil {
			m.Key, m.Value = []byte(row.OrderID), row.Payload
			b.refused = append(b.refused, dead{m, causeOf(err), err.Error()})
			continue
		}
		topics[topic] = append(topics[topic], m.Raw())
	}
	for topic, records := range topics {
		for p, part := range b.spread(ctx, topic, records) {
			r := request{place{topic, p}, part}
			switch try, trial := b.shunned.may(r.place, len(work[trialLane]) == 0); {
			case !try:
				b.leave(len(part))
			case trial:
				r.records = part[:min(len(part), trialRecords)]
				b.leave(len(part) - len(r.records))
				work[trialLane] = []request{r}
			default:
				work[p%lanes] = append(work[p%lanes], r)
			}
		}
	}
	return work
}

// spread sorts records by the partition of their topic that each belongs to. Of a topic
// that is missing they are left, as of a partition that takes no records.
func (b *batch) spread(ctx context.Context, topic string, records []orderclose.RawRecord) map[int][]orderclose.RawRecord {
	whole := place{topic, wholeTopic}
	if try, _ := b.shunned.may(whole, true); !try {
		b.leave(len(records))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, routeTime)
	defer cancel()
	spread, err := b.o.Log.ByKey(ctx, topic, records)
	if err == nil {
		if b.shunned.took(whole) {
			b.logger.Info("the partitions of a topic are found again", "topic", topic)
		}
		return spread
	}
	if since, tell := b.shunned.failed(whole); tell {
		b.logger.Warn("cannot find the partitions of a topic: its rows wait, others go on", "topic", topic, "since", since, "err", err)
	}
	b.err = err
	b.leave(len(records))
	return nil
}

// leave counts rows that wait for a partition that takes no records.
func (b *batch) leave(rows int) {
	b.left += rows
	b.tried -= rows
}

// request is what goes to one partition.
type request struct {
	place
	records []orderclose.RawRecord
}

// lane appends what goes to some of the partitions, one after the other.
func (b *batch) lane(ctx context.Context, appendTo orderclose.AppendFunc, requests []request) {
	for _, r := range requests {
		late := ctx.Err() // not this partition's doing
		left, err := b.all(ctx, appendTo, r)
		if err == nil {
			if b.shunned.took(r.place) {
				b.logger.Info("a partition accepts records again", "topic", r.topic, "partition", r.partition)
			}
			continue
		}
		if late == nil {
			if since, tell := b.shunned.failed(r.place); tell {
				b.logger.Warn("append to a partition failed, its rows stay in the outbox", "topic", r.topic, "partition", r.partition, "since", since, "err", err)
			}
		}
		b.mu.Lock()
		b.err = err
		b.leave(left)
		b.mu.Unlock()
	}
}

// all appends a request in as many parts as it takes, and returns how many records are
// left if one fails.
func (b *batch) all(ctx context.Context, appendTo orderclose.AppendFunc, r request) (left int, err error) {
	for rest := r.records; len(rest) > 0; {
		n := orderclose.Fitting(rest)
		if err := b.append(ctx, appendTo, request{r.place, rest[:n:n]}); err != nil {
			return len(rest), err
		}
		rest = rest[n:]
	}
	return 0, nil
}

// append writes one request. Records that Kafka refuses together are tried in
// halves, down to those that are to blame. The error is one that may pass.
func (b *batch) append(ctx context.Context, appendTo orderclose.AppendFunc, r request) error {
	_, err := appendTo(ctx, r.topic, r.partition, r.records)
	definite := errors.Is(err, orderclose.ErrRefused)
	switch half := len(r.records) / 2; {
	case err != nil && !definite:
		return err
	case err != nil && half > 0:
		if err := b.append(ctx, appendTo, request{r.place, r.records[:half:half]}); err != nil {
			return err
		}
		return b.append(ctx, appendTo, request{r.place, r.records[half:]})
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

// bury makes dead letters of what was refused. What cannot be buried stays where it is:
// what the dead-letter topic refuses is looked past for a while, what there was no time
// for is tried again.
func (b *batch) bury(ctx context.Context) {
	if len(b.refused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, buryTime)
	defer cancel()
	letters := make([]orderclose.RawRecord, len(b.refused))
	by := make(map[int64]dead, len(b.refused))
	for i, d := range b.refused {
		id := d.message.Offset
		d.message.Topic = "outbox_" + string(b.kind.Outbox)
		letter := orderclose.DeadLetter(d.message, Stage, d.cause, d.detail)
		letter.Offset = id
		letters[i], by[id] = letter.Raw(), d
	}
	spread, err := b.o.Log.ByKey(ctx, b.o.DeadLetterTopic, letters)
	if err != nil {
		b.unburied(letters, err)
		return
	}
	for p, part := range spread {
		for len(part) > 0 {
			n := orderclose.Fitting(part)
			_, err := b.appends[0](ctx, b.o.DeadLetterTopic, p, part[:n:n])
			if err != nil {
				b.unburied(part, err)
				break
			}
			for _, letter := range part[:n] {
				d := by[letter.Offset]
				b.logger.Error("dead letter", "id", letter.Offset, "order", string(d.message.Key), "cause", d.cause, "detail", d.detail)
				b.done = append(b.done, letter.Offset)
				b.buried = append(b.buried, d.cause)
			}
			part = part[n:]
		}
	}
}

// unburied notes that rows can neither be published nor made dead letters of.
func (b *batch) unburied(letters []orderclose.RawRecord, err error) {
	b.err = fmt.Errorf("%s takes no dead letters: %w", b.o.DeadLetterTopic, err)
	b.logger.Error("cannot write dead letters, the rows stay in the outbox: check the dead-letter topic", "rows", len(letters), "first", letters[0].Offset, "err", err)
	b.leave(len(letters))
	for _, letter := range letters {
		b.aside.put(letter.Offset)
	}
}
