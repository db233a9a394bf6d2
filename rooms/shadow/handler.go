package shadow

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxBatch is how many orders are asked about at once.
	maxBatch = 500
	// maxParked bounds the orders of a partition that wait until they are due, some 300 bytes each.
	// With many more, the runs of done offsets between them do not fit into the metadata of a
	// commit. An order beyond the bound gets the verdict not_due.
	maxParked = 10_000
	// maxUnacked bounds the verdicts of a partition that wait for their ack. At the bound the
	// database is not asked.
	maxUnacked = 5000
)

// handler serves one partition of the close topic. Its fields belong to the goroutine of the
// partition's loop.
type handler struct {
	*Shadow
	loop    *partition.Loop
	queue   []*entry       // to be asked about now, in log order
	parked  []*entry       // not due yet, sorted by until
	asking  bool           // a question is in flight
	backoff *retry.BackOff // set while the database does not answer
	askAt   time.Time      // no question begins before this time

	verdicts []wire.RawRecord // to be appended, with the offsets of their records
	unacked  int              // verdicts that wait or are in flight
	sendAt   time.Time        // when to try an append again, if verdicts wait
}

// entry is a record of the close topic, without its attributes and headers.
type entry struct {
	request orderclose.CloseRequest
	offset  int64
	until   time.Time // if parked: when to ask again, by the local clock
}

func (s *Shadow) newHandler(l *partition.Loop) partition.Handler {
	return &handler{Shadow: s, loop: l}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	now, ready := time.Now(), 0
	for ready < len(h.parked) && !now.Before(h.parked[ready].until) {
		ready++
	}
	h.queue = append(h.queue, h.parked[:ready]...)
	h.parked = slices.Delete(h.parked, 0, ready)
	h.ask()
	h.send()
}

// Room implements partition.Handler. There is room when each order was asked about.
func (h *handler) Room() (bool, time.Duration) {
	if len(h.queue) == 0 && h.unacked < maxUnacked {
		return true, 0
	}
	return false, 0
}

// Handle implements partition.Handler. It queues the records.
func (h *handler) Handle(f wire.Fetched) {
	for _, r := range f.Records {
		var record wire.Record
		m, err := r.Message()
		if err == nil {
			record, err = m.DecodeWithoutAttributes()
		}
		if err != nil {
			h.loop.DeadLetterUnreadable(r, err)
			continue
		}
		o := record.Order
		h.queue = append(h.queue, &entry{
			request: orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due},
			offset:  r.Offset,
		})
	}
	if f.Free != nil {
		f.Free()
	}
}

// End implements partition.Handler.
func (h *handler) End() {}

// ask asks the database about the first orders of the queue, in another goroutine.
func (h *handler) ask() {
	if h.asking || len(h.queue) == 0 || h.unacked >= maxUnacked || time.Now().Before(h.askAt) {
		return
	}
	n := min(len(h.queue), maxBatch)
	batch := h.queue[:n:n]
	h.queue = h.queue[n:]
	var outcomes []orderclose.Outcome
	var err error
	h.asking = true
	h.loop.Go(func(ctx context.Context) { outcomes, err = h.preview(ctx, batch) }, func() {
		h.asking = false
		h.apply(batch, outcomes, err)
	})
}

// apply makes a verdict of each outcome, or parks the order until it is due. After an error the
// batch is asked about again. After a revocation the next owner reads the batch again.
func (h *handler) apply(batch []*entry, outcomes []orderclose.Outcome, err error) {
	if h.loop.Ctx.Err() != nil {
		return
	}
	if err != nil {
		if h.backoff == nil {
			h.backoff = retry.NewBackOff()
		}
		if h.backoff.ShouldLog() {
			h.loop.Logger.Warn("the database does not say what a close would do, will retry", "err", err)
		}
		h.queue, h.askAt = slices.Concat(batch, h.queue), time.Now().Add(h.backoff.NextBackOff())
		return
	}
	h.backoff = nil
	now := time.Now()
	for i, o := range outcomes {
		e := batch[i]
		switch {
		case o.Verdict == orderclose.NotDue && !orderclose.IsNever(o.Due) && len(h.parked) < maxParked:
			e.until = now.Add(o.Remaining())
			at, _ := slices.BinarySearchFunc(h.parked, e.until, func(other *entry, until time.Time) int {
				return cmp.Or(other.until.Compare(until), -1) // behind those of the same time
			})
			h.parked = slices.Insert(h.parked, at, e)
		default:
			h.add(e, o)
		}
	}
}

// add queues the verdict on an order.
func (h *handler) add(e *entry, o orderclose.Outcome) {
	h.counts.WithLabelValues(string(o.Verdict)).Inc()
	v := Verdict{OrderID: o.OrderID, Verdict: o.Verdict, Due: o.Due.UTC(), At: o.At.UTC(), Path: orderclose.PathPipeline}
	m := v.Encode()
	m.Offset = e.offset
	h.verdicts = append(h.verdicts, m.Raw())
	h.unacked++ //mutant:shadow-commits-early
}

// send starts to append the waiting verdicts, unless an append is in flight.
func (h *handler) send() {
	if len(h.verdicts) == 0 || h.loop.Ctx.Err() != nil || time.Now().Before(h.sendAt) {
		return
	}
	verdicts := h.verdicts
	h.verdicts = nil
	h.loop.Send(h.o.Topic, verdicts, func(sent send.Result) {
		for _, acked := range sent.Acked {
			h.unacked -= len(acked.Records)
		}
		h.unacked -= len(sent.Refused)
		h.verdicts, h.sendAt = slices.Concat(sent.Left, h.verdicts), time.Now().Add(sent.Pause)
	})
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	now := time.Now()
	if len(h.verdicts) > 0 {
		d = min(d, h.sendAt.Sub(now))
	}
	if len(h.parked) > 0 {
		d = min(d, h.parked[0].until.Sub(now))
	}
	if len(h.queue) > 0 && !h.asking && h.unacked < maxUnacked {
		d = min(d, h.askAt.Sub(now))
	}
	return d
}
