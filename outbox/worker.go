package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
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
	undeleted  undeleted
	quarantine *quarantine // shared by the workers of a kind
	after      int64       // id after which the next batch is read
	metrics    *dispatcherMetrics
	tracer     tracing.Tracer
	logger     *slog.Logger
}

// newWorkers returns the workers of a kind: the leader and its helpers.
func newWorkers(o Options, m *dispatcherMetrics, k Kind) []*worker {
	logger := o.Logger.With("outbox", k.outbox)
	quarantine := &quarantine{until: map[int64]time.Time{}}
	workers := make([]*worker, o.InFlight)
	for i := range workers {
		workers[i] = &worker{o: o, kind: k, undeleted: undeleted{}, quarantine: quarantine, metrics: m, tracer: tracing.New(o.TracerProvider), logger: logger}
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
		from := w.after
		found, err := w.dispatchNext(ctx)
		idle = found == 0 && err == nil
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures.ShouldLog() {
				w.logger.Warn("dispatch failed, will retry", "err", err)
			}
			if pause = failures.NextBackOff(); from > 0 { // the last rows of the table, and Kafka takes none of them
				pause = longestPause
			}
		default:
			failures.Reset()
			switch {
			case w.after > 0 && found == 1: // Kafka accepts none of these rows, and others may be behind them
				pause = passPause
			case from > 0 && found == 0: // the end of the table
				pause = longestPause
			default:
				pause = nextPause(pause, found, w.o.Batch)
			}
			if pause == 0 {
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
			if found, err := w.dispatchNext(ctx); err != nil || found < w.o.Batch {
				break // the leader handles the rest
			}
		}
	}
}

// dispatchNext dispatches one batch. found is how many rows it had; a full batch of which Kafka accepts nothing counts as one. Rows that
// cannot be published now keep no others waiting: the next batch follows a full one of which rows are left, until the end of the table.
func (w *worker) dispatchNext(ctx context.Context) (found int, err error) {
	from := w.after
	b, n, err := w.dispatch(ctx, from)
	w.after = 0 //mutant:skipped-never-retried
	switch {
	case b == nil || err != nil:
		return n, err
	case n < w.o.Batch:
		return len(b.done), b.stuck()
	case from > 0 || len(b.done) < len(b.rows): //mutant:missing-topic-stops
		w.after = b.last()
	}
	if len(b.done) == 0 {
		return 1, nil
	}
	return n, nil
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
	// passPause is the pause between two full batches of which Kafka accepts nothing.
	passPause = 50 * time.Millisecond
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
