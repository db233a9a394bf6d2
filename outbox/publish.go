package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// lanes is over how many requests at once a batch is spread: each partition is a
// request of its own.
const lanes = 4

const (
	// buryTime bounds an append to the dead-letter topic, so that a topic that is
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
	past    int      // rows that the last batch left to shunned partitions: looked past
	logger  *slog.Logger
	appends [lanes]orderclose.AppendFunc
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
	n, err := w.o.Store.Dispatch(ctx, w.kind.Outbox, w.o.Batch+w.aside.len()+w.past, func(ctx context.Context, rows []orderclose.OutboxRow) []int64 {
		b = &batch{worker: w}
		ctx, cancel := context.WithTimeout(ctx, holdTime)
		defer cancel()
		return b.publish(ctx, w.aside.leave(rows))
	})
	if b == nil {
		w.past = 0
		return n, err
	}
	before := w.past
	w.past = min(b.left, pastBatches*w.o.Batch)
	if err == nil {
		w.o.Metrics.Dispatched(w.kind.Outbox, len(b.done)-len(b.buried))
		for _, cause := range b.buried {
			w.o.Metrics.DeadLettered(Stage, cause)
		}
	}
	if len(b.done) == 0 {
		err = errors.Join(err, b.err)
	}
	if b.tried == 0 && w.past > before {
		return w.o.Batch, err // others may be right behind them
	}
	return b.tried, err
}

// batch is rows on their way to Kafka.
type batch struct {
	*worker

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
	var work [lanes][]request
	for topic, records := range topics {
		spread, err := b.o.Log.ByKey(ctx, topic, records)
		if err != nil {
			b.err = err
			continue
		}
		for p, part := range spread {
			r := request{place: place{topic, p}, records: part}
			try, trial := b.shunned.may(r.place)
			if !try {
				b.left += len(part)
				b.tried -= len(part)
				continue
			}
			r.trial = trial
			work[p%lanes] = append(work[p%lanes], r)
		}
	}
	var running sync.WaitGroup
	for i, requests := range work {
		if len(requests) > 0 {
			running.Go(func() { b.lane(ctx, b.appends[i], requests) })
		}
	}
	running.Wait()
	b.bury(ctx)
	return b.done
}

// request is what goes to one partition.
type request struct {
	place
	records []orderclose.RawRecord
	trial   bool // the partition is shunned, and may be back
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
		b.tried, b.left = b.tried-len(r.records), b.left+len(r.records)
		b.mu.Unlock()
	}
}

// all appends a request in as many parts as it takes.
func (b *batch) all(ctx context.Context, appendTo orderclose.AppendFunc, r request) error {
	may := tryTime
	if r.trial {
		may = trialTime
	}
	ctx, cancel := context.WithTimeout(ctx, may)
	defer cancel()
	for rest := r.records; len(rest) > 0; {
		n := orderclose.Fitting(rest)
		if err := b.append(ctx, appendTo, request{place: r.place, records: rest[:n:n]}); err != nil {
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
		if err := b.append(ctx, appendTo, request{place: r.place, records: r.records[:half:half]}); err != nil {
			return err
		}
		return b.append(ctx, appendTo, request{place: r.place, records: r.records[half:]})
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

// bury makes dead letters of what was refused. What cannot be buried stays where
// it is, and is looked past for a while.
func (b *batch) bury(ctx context.Context) {
	if len(b.refused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, buryTime)
	defer cancel()
	for _, d := range b.refused {
		id := d.message.Offset
		log := b.logger.With("id", id, "order", string(d.message.Key), "cause", d.cause, "detail", d.detail)
		d.message.Topic = "outbox_" + string(b.kind.Outbox)
		letter := orderclose.DeadLetter(d.message, Stage, d.cause, d.detail)
		if err := b.appendDead(ctx, letter.Raw()); err != nil {
			log.Error("a row can neither be published nor made a dead letter of: check the dead-letter topic", "err", err)
			b.aside.put(id)
			continue
		}
		log.Error("dead letter")
		b.done = append(b.done, id)
		b.buried = append(b.buried, d.cause)
	}
}

func (b *batch) appendDead(ctx context.Context, record orderclose.RawRecord) error {
	spread, err := b.o.Log.ByKey(ctx, b.o.DeadLetterTopic, []orderclose.RawRecord{record})
	for p, part := range spread {
		_, err = b.appends[0](ctx, b.o.DeadLetterTopic, p, part)
	}
	return err
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
