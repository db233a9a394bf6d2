package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// asideTime is how long a row is left alone that could neither be published nor
	// made a dead letter of.
	asideTime = 30 * time.Second
	// maxAside bounds how many such rows are looked past. With more the outbox stands
	// still, and its age tells.
	maxAside = 100
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
	aside   *aside   // shared by the workers of a kind
	shunned *shunned // and this
	after   int64    // where to look on, past rows that were left to shunned partitions; 0: at the beginning
	idle    int      // batches since any row was there to be tried
	waits   bool     // all rows that were seen last wait for shunned partitions
	logger  *slog.Logger
	appends [lanes + 1]orderclose.AppendFunc
}

func (d *Dispatcher) newWorker(ctx context.Context, k Kind, set *aside, places *shunned) *worker {
	w := &worker{Dispatcher: d, ctx: ctx, kind: k, aside: set, shunned: places, logger: d.o.Logger.With("outbox", k.Outbox)}
	for i := range w.appends {
		w.appends[i] = d.o.Log.Idempotent(nil, d.o.Metrics.Repeated)
	}
	return w
}

// turn dispatches one batch and returns how many rows were there to be tried. The
// error is the database's or Kafka's, if Kafka took nothing; what was published by then
// is deleted all the same, if the database can.
func (w *worker) turn() (found int, err error) {
	ctx, cancel := partition.Linger(w.ctx, lingerTime)
	defer cancel()
	var b *batch
	limit := w.o.Batch + w.aside.len()
	n, err := w.o.Store.Dispatch(ctx, w.kind.Outbox, w.after, limit, func(ctx context.Context, rows []orderclose.OutboxRow) []int64 {
		b = &batch{worker: w, last: rows[len(rows)-1].ID}
		return b.publish(ctx, w.aside.leave(rows))
	})
	if b == nil {
		w.after = 0
		return n, err
	}
	if err == nil {
		w.o.Metrics.Dispatched(w.kind.Outbox, len(b.done)-len(b.buried))
		for _, cause := range b.buried {
			w.o.Metrics.DeadLettered(Stage, cause)
		}
	}
	if len(b.done) == 0 {
		err = errors.Join(err, b.err)
	}
	return w.lookOn(b, n < limit), err
}

// lookOn decides where to look next, after a batch that may have been the end of the
// outbox. Rows that were left are looked past, a few batches of them without a pause,
// until the end, and then it begins anew. It returns how many rows there were to be
// tried, or as many as a batch has if others may be right behind those that were left.
func (w *worker) lookOn(b *batch, end bool) (found int) {
	switch {
	case end:
		w.after = 0
	case b.left > 0 || w.after > 0:
		w.after = b.last
	}
	w.waits = b.tried == 0 && b.left > 0
	if !w.waits {
		w.idle = 0
		return b.tried
	}
	if w.idle++; w.idle < pastBatches && !end {
		return w.o.Batch
	}
	w.idle = 0
	return 0
}

// batch is rows on their way to Kafka.
type batch struct {
	*worker
	last int64 // the highest id

	mu      sync.Mutex // of what follows, while lanes run
	tried   int        // rows that are neither aside nor left
	left    int        // rows for partitions that take no records
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
	b.tried = len(rows)
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
		spread, err := b.o.Log.ByKey(ctx, topic, records)
		if err != nil {
			b.err = err
			continue
		}
		for p, part := range spread {
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
		err := b.all(ctx, appendTo, r)
		if err == nil {
			if b.shunned.took(r.place) {
				b.logger.Info("a partition takes records again", "topic", r.topic, "partition", r.partition)
			}
			continue
		}
		if late == nil && b.shunned.failed(r.place) {
			b.logger.Warn("a partition takes no records: its rows wait, others go on", "topic", r.topic, "partition", r.partition, "err", err)
		}
		b.mu.Lock()
		b.err = err
		b.leave(len(r.records))
		b.mu.Unlock()
	}
}

// all appends a request in as many parts as it takes.
func (b *batch) all(ctx context.Context, appendTo orderclose.AppendFunc, r request) error {
	for rest := r.records; len(rest) > 0; {
		n := orderclose.Fitting(rest)
		if err := b.append(ctx, appendTo, request{r.place, rest[:n:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// append writes one request. Records that Kafka refuses together are tried in
// halves, down to those that are to blame. The error is one that may pass.
func (b *batch) append(ctx context.Context, appendTo orderclose.AppendFunc, r request) error {
	_, err := appendTo(ctx, r.topic, r.partition, r.records)
	definite := errors.Is(err, orderclose.ErrTooLarge) || errors.Is(err, orderclose.ErrRefused)
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
	b.logger.Error("rows can neither be published nor made dead letters of: check the dead-letter topic", "rows", len(letters), "first", letters[0].Offset, "err", err)
	for _, letter := range letters {
		b.aside.put(letter.Offset)
	}
}

// aside are rows that are left alone for a while. Safe for concurrent use.
type aside struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func newAside() *aside { return &aside{until: map[int64]time.Time{}} }

func (a *aside) put(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) < maxAside {
		a.until[id] = time.Now().Add(asideTime)
	}
}

// len is how many rows there are, those left out whose time has come.
func (a *aside) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, until := range a.until {
		if !time.Now().Before(until) {
			delete(a.until, id)
		}
	}
	return len(a.until)
}

// leave returns rows without those that are aside.
func (a *aside) leave(rows []orderclose.OutboxRow) []orderclose.OutboxRow {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) == 0 {
		return rows
	}
	var left []orderclose.OutboxRow
	for _, r := range rows {
		if _, is := a.until[r.ID]; !is {
			left = append(left, r)
		}
	}
	return left
}
