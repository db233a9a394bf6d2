package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// stopTimeout is how long a batch may continue after ctx has ended, so that published
// rows are also deleted.
const stopTimeout = publishTimeout + time.Second

// worker dispatches batches of one kind, one at a time. It belongs to one goroutine.
type worker struct {
	o          Options
	kind       Kind
	sender     *send.Sender // a twin of those of the kind's other workers
	undeleted  undeleted
	skipped    *skippedRows // shared by the workers of a kind
	quarantine *quarantine  // shared by the workers of a kind
	next       int64        // id after which the next batch is read; 0: skipped.pollFrom decides
	walk       walk         // used by the leader only
	metrics    *dispatcherMetrics
	tracer     tracing.Tracer
	logger     *slog.Logger
}

// newWorkers returns the workers of a kind: the leader and its helpers.
func newWorkers(o Options, m *dispatcherMetrics, k Kind) []*worker {
	logger := o.Logger.With("outbox", k.outbox)
	skipped, quarantine := &skippedRows{}, &quarantine{until: map[int64]time.Time{}}
	sender := send.New(send.Options{Producers: o.Kafka, Group: o.Kafka.GroupByKey, MinRest: minRest, Repeated: m.Repeated, Logger: logger})
	workers := make([]*worker, o.InFlight)
	for i := range workers {
		workers[i] = &worker{o: o, kind: k, sender: sender.Twin(), undeleted: undeleted{}, skipped: skipped, quarantine: quarantine, metrics: m,
			tracer: tracing.New(o.TracerProvider), logger: logger}
	}
	return workers
}

// lead dispatches one batch after the other. After a full batch it goes on at once and wakes the other workers. After a smaller
// batch, or an error, it pauses first. After an empty batch it also waits for a signal from rows.
func (w *worker) lead(ctx context.Context, rows <-chan struct{}, more chan<- struct{}) {
	failures := retry.NewBackOff()
	var pause time.Duration
	idle := true // the last batch was empty
	for ctx.Err() == nil {
		if idle {
			select {
			case <-rows:
			case <-ctx.Done():
				return
			}
		}
		found, err := w.dispatchNew(ctx)
		if err == nil && ctx.Err() == nil {
			var retried int
			retried, err = w.dispatchSkipped(ctx)
			found = max(found, retried)
		}
		idle = found == 0 && err == nil
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures.ShouldLog() {
				w.logger.Warn("dispatch failed, will retry", "err", err)
			}
			pause = failures.NextBackOff()
		default:
			failures.Reset()
			if pause = nextPause(pause, found, w.o.Batch); pause == 0 {
				select {
				case more <- struct{}{}:
				default: // all workers are awake
				}
				continue
			}
		}
		retry.Sleep(ctx, jitter(pause))
	}
}

// help dispatches batches when the leader wakes it, until a batch is not full.
func (w *worker) help(ctx context.Context, more <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
		for ctx.Err() == nil {
			if found, err := w.dispatchNew(ctx); err != nil || found < w.o.Batch {
				break // the leader handles the rest
			}
		}
	}
}

// dispatchNew dispatches one batch of new rows, or of all rows if none are skipped. found is how
// many rows could be tried. If further rows may follow skipped rows, found is a full batch, so that
// the next batch is read at once.
func (w *worker) dispatchNew(ctx context.Context) (found int, err error) {
	if w.next == 0 {
		w.next = w.skipped.pollFrom()
	}
	from := w.next
	b, n, err := w.dispatch(ctx, from)
	w.next = 0
	if b == nil || err != nil {
		return n, err
	}
	w.skipped.notePolled(b.highestSkipped(), time.Now())
	if n == w.o.Batch && (b.skipped > 0 || from > 0) { //mutant:missing-topic-stops
		w.next = b.last()
		return n, b.stuck()
	}
	return b.tried(), b.stuck()
}

// dispatchSkipped dispatches one batch of the skipped rows, if there are any and the
// pause has passed. found is how many rows could be tried.
func (w *worker) dispatchSkipped(ctx context.Context) (found int, err error) {
	from, on := w.skipped.resume(&w.walk, time.Now())
	if !on {
		return 0, nil
	}
	b, n, err := w.dispatch(ctx, from)
	if err != nil {
		return 0, err
	}
	if b == nil {
		w.skipped.noteWalked(&w.walk, walked{last: from, atEnd: true}, time.Now())
		return 0, nil
	}
	w.skipped.noteWalked(&w.walk, walked{b.last(), b.highestSkipped(), b.tried() > 0, n < w.o.Batch}, time.Now())
	return b.tried(), b.stuck()
}

// dispatch dispatches up to one batch of rows with ids above from. It returns the
// batch, nil if there are no rows, and the number of rows that were read. The error
// is the database's. If the published rows could not be deleted, undeleted holds them.
func (w *worker) dispatch(ctx context.Context, from int64) (b *rowBatch, n int, err error) {
	ctx, cancel := retry.WithFinishTime(ctx, stopTimeout)
	defer cancel()
	n, err = w.o.Store.Dispatch(ctx, w.kind.outbox, from, w.o.Batch, func(ctx context.Context, rows []wire.OutboxRow) []int64 {
		b = &rowBatch{rows: rows}
		if b.done = w.undeleted.idsIn(rows); len(b.done) == 0 {
			w.publish(ctx, b)
		}
		return b.done
	})
	if b == nil {
		return nil, n, err
	}
	for _, cause := range b.deadCauses {
		w.metrics.DeadLettered(Stage, cause)
	}
	if err != nil {
		w.undeleted.add(b.rows, b.done) //mutant:undeleted-published-again
		return b, n, err
	}
	clear(w.undeleted)
	w.metrics.dispatched.WithLabelValues(string(w.kind.outbox)).Add(float64(len(b.done) - len(b.deadCauses)))
	return b, n, nil
}

// Limits of the pause after a poll, or after a batch that was not full. A row waits
// half a pause on average. A poll that finds nothing is one statement by primary key for all outboxes.
// So quiet outboxes cost each process one such statement a second.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = time.Second
)

// nextPause returns the pause before the next poll, given the last pause and how many
// rows the last poll found: none after a full batch, short while rows come, longer
// while none come.
func nextPause(last time.Duration, found, batch int) time.Duration {
	switch {
	case found >= batch:
		return 0
	case found > 0:
		return shortestPause
	}
	return min(max(2*last, shortestPause), longestPause)
}

// jitter changes d by up to a fifth in either direction, so that processes do not
// poll in step.
func jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(max(2*d/5, 1)) }
