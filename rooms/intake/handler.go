package intake

import (
	"cmp"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxUnacked bounds the records of a partition that wait or are in flight, some 300 bytes each. At the bound
	// nothing is fetched.
	maxUnacked = 5000
)

// handler serves one partition of the topic. Its fields belong to the goroutine of the partition's loop.
type handler struct {
	*Intake
	loop     *partition.Loop
	queue    []waiting // in the order of their change records
	inFlight int
	flying   map[string]flying // by order: its records in flight
	sendAt   time.Time         // when a waiting record may be appended; zero: perhaps now
	reached  time.Time         // the append time of the last record that was read; zero at the end of the log
}

// waiting is a record that is to be appended, and not before at.
type waiting struct {
	wire.RawRecord
	at time.Time
}

// flying are the records of one order in flight: how many, and the append time of the first change record.
type flying struct {
	records int
	since   time.Time
}

func (i *Intake) newHandler(l *partition.Loop) partition.Handler {
	return &handler{Intake: i, loop: l, flying: map[string]flying{}}
}

// Handle implements partition.Handler. It queues a record for each row to be scheduled.
func (h *handler) Handle(f wire.Fetched) {
	for _, r := range f.Records {
		h.reached = r.AppendedAt()
		records, err := h.schedule(r)
		parts := len(records)
		if err != nil {
			h.loop.DeadLetterUnreadable(r, err)
			parts++
		}
		switch {
		case parts == 0:
			h.loop.Done(r.Offset)
		case parts > 1:
			h.loop.Split(r.Offset, parts)
		}
		for _, r := range records {
			h.queue, h.sendAt = append(h.queue, waiting{RawRecord: r}), time.Time{}
		}
	}
	if f.AtEnd {
		h.reached = time.Time{}
	}
	if f.Free != nil {
		f.Free()
	}
}

// schedule returns the records of the rows of a change record. The error, a *wire.RecordError, is that of the record, or of
// the last row that cannot be scheduled.
func (h *handler) schedule(r wire.RawRecord) (records []wire.RawRecord, err error) {
	m, err := r.Message()
	if err != nil {
		return nil, err
	}
	from, changes, skip, err := readChange(h.o.Format, m.Value)
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 && !isOrders(h.o.Orders, from) {
		changes, skip = nil, otherTable
	}
	if len(changes) == 0 {
		h.metrics.rows.WithLabelValues(string(skip)).Inc()
	}
	for _, c := range changes {
		o, is, failed := h.reader.decide(c, h.o.Now(), m.Appended)
		if failed != nil {
			err = failed
			continue
		}
		if h.metrics.rows.WithLabelValues(string(is)).Inc(); is != scheduled {
			continue
		}
		due, failed := wire.Record{Order: o, Release: o.Due}.Encode()
		if failed != nil {
			err = &wire.RecordError{Reason: wire.ErrBadValue, Detail: failed.Error()}
			continue
		}
		due.Offset, due.Appended = r.Offset, m.Appended
		raw := due.Raw()
		raw.DueAt = o.Due.UnixMilli()
		records = append(records, raw)
	}
	return records, err
}

// Turn implements partition.Handler. It starts to append the waiting records, each to the topic that fits now. A record
// waits behind an earlier one of its order, which is in flight or waits for another try: they must not overtake one another.
func (h *handler) Turn() {
	defer h.report()
	clock := time.Now()
	if len(h.queue) == 0 || h.loop.Ctx.Err() != nil || clock.Before(h.sendAt) {
		return
	}
	now, buckets, queue := h.o.Now(), h.o.Current(), h.queue
	byTopic, topics := map[string][]wire.RawRecord{}, []string(nil)
	behind := map[string]bool{} // by order: a record waits
	h.queue, h.sendAt = nil, clock.Add(time.Hour)
	for _, r := range queue {
		order := string(r.Key())
		if clock.Before(r.at) && !behind[order] && r.at.Before(h.sendAt) {
			h.sendAt = r.at
		}
		if behind[order] || clock.Before(r.at) || h.flying[order].records > 0 { // handleSent wakes those behind it
			behind[order] = true
			h.queue = append(h.queue, r)
			continue
		}
		topic := buckets.TopicAt(now, time.UnixMilli(r.DueAt), h.o.CloseTopic)
		if byTopic[topic] == nil {
			topics = append(topics, topic)
		}
		byTopic[topic] = append(byTopic[topic], r.RawRecord)
	}
	for _, records := range byTopic {
		h.inFlight += len(records)
		for _, r := range records {
			f := h.flying[string(r.Key())]
			if f.records++; f.records == 1 {
				f.since = r.AppendedAt()
			}
			h.flying[string(r.Key())] = f
		}
	}
	for _, topic := range topics {
		h.loop.Send(topic, byTopic[topic], h.handleSent)
	}
}

// handleSent processes the result of an append. What is left waits again, in the order of the change records: it may
// come from several topics, and go to one.
func (h *handler) handleSent(sent send.Result) {
	h.sendAt = time.Time{}
	for _, acked := range sent.Acked {
		for _, r := range acked.Records {
			h.landed(r)
		}
	}
	for _, refused := range sent.Refused { // the loop makes a dead letter
		h.landed(refused.Record)
	}
	for _, r := range sent.Left {
		h.landed(r)
		h.queue = append(h.queue, waiting{r, time.Now().Add(sent.Pause)})
	}
	if len(sent.Left) > 0 {
		slices.SortStableFunc(h.queue, func(a, b waiting) int { return cmp.Compare(a.Offset, b.Offset) })
	}
}

// landed notes that a record is no longer in flight.
func (h *handler) landed(r wire.RawRecord) {
	h.inFlight--
	order := string(r.Key())
	f := h.flying[order]
	if f.records--; f.records == 0 {
		delete(h.flying, order)
		return
	}
	h.flying[order] = f
}

// Room implements partition.Handler.
func (h *handler) Room() (bool, time.Duration) {
	if len(h.queue)+h.inFlight < maxUnacked {
		return true, 0
	}
	return false, 0
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	if len(h.queue) > 0 {
		d = min(d, time.Until(h.sendAt))
	}
	return d
}

// End implements partition.Handler.
func (h *handler) End() { h.metrics.Revoked(h.loop.Claim.Topic, h.loop.Claim.Partition) }

// report updates the metrics of the partition.
func (h *handler) report() {
	since, waits := h.reached, len(h.queue) > 0
	if waits {
		since = h.queue[0].AppendedAt()
	}
	for _, f := range h.flying {
		if !waits || f.since.Before(since) {
			since, waits = f.since, true
		}
	}
	h.metrics.Behind(h.loop.Claim.Topic, h.loop.Claim.Partition, since)
}
