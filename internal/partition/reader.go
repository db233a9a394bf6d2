// Package partition holds what every loop over a partition needs: a reader that
// keeps one fetch under way, the low watermark of what is done, and the retries.
package partition

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"orderclose"
)

// corruptTries is how often a batch that cannot be read is fetched again before
// it counts as damaged: the damage may be on the way.
const corruptTries = 3

// Log fetches from a partition; see kafka.Cluster.Fetch for the contract.
type Log interface {
	Fetch(ctx context.Context, topic string, partition int, offset int64) (orderclose.Fetched, error)
}

// ReaderMetrics is told how the fetches of a partition go.
type ReaderMetrics interface {
	// FetchFailing says since when no fetch of a partition has succeeded. The zero
	// time: they do.
	FetchFailing(stage, topic string, partition int, since time.Time)
	// FetchEnded says that a partition is fetched no longer.
	FetchEnded(stage, topic string, partition int)
}

// Reader reads a claim forward, with at most one fetch under way. It belongs to
// one goroutine, the claim's loop; the fetch runs in another and hands its
// result over by C.
//
//	r.Start()                     // when more is wanted
//	select { case f := <-r.C: r.Took(f) … }
//	r.Wait()                      // after ctx has ended, before returning
type Reader struct {
	C chan orderclose.Fetched // what a fetch brought

	ctx    context.Context
	log    Log
	claim  orderclose.Claim
	stage  string
	m      ReaderMetrics
	logger *slog.Logger
	next   int64
	busy   bool
	under  sync.WaitGroup
}

// NewReader returns a Reader of the claim that ends with ctx, for a stage. Whoever
// makes one must Wait for it.
func NewReader(ctx context.Context, log Log, claim orderclose.Claim, stage string, m ReaderMetrics, logger *slog.Logger) *Reader {
	m.FetchFailing(stage, claim.Topic, claim.Partition, time.Time{})
	return &Reader{
		C:   make(chan orderclose.Fetched, 1),
		ctx: ctx, log: log, claim: claim, next: claim.Offset,
		stage: stage, m: m,
		logger: logger.With("topic", claim.Topic, "partition", claim.Partition),
	}
}

// Start begins a fetch, unless one is under way.
func (r *Reader) Start() {
	if r.busy {
		return
	}
	r.busy = true
	r.under.Go(func() {
		if f, ok := r.fetch(r.next); ok {
			r.C <- f
		}
	})
}

// Took notes that the result of the fetch was received from C.
func (r *Reader) Took(f orderclose.Fetched) {
	r.busy, r.next = false, f.Next
}

// Rewind makes the next fetch begin at an offset that was read before. None may
// be under way.
func (r *Reader) Rewind(offset int64) { r.next = offset }

// Busy reports whether a fetch is under way.
func (r *Reader) Busy() bool { return r.busy }

// Next is the offset after the last one that was read.
func (r *Reader) Next() int64 { return r.next }

// Wait waits for the fetch under way, which is the last one. Its result stays in C,
// unread.
func (r *Reader) Wait() {
	r.under.Wait()
	r.m.FetchEnded(r.stage, r.claim.Topic, r.claim.Partition)
}

// fetch retries until it has something to show, or reports false when ctx ends.
func (r *Reader) fetch(offset int64) (orderclose.Fetched, bool) {
	retry := NewBackOff()
	failing := false
	for try := 1; ; try++ {
		f, err := r.log.Fetch(r.ctx, r.claim.Topic, r.claim.Partition, offset)
		if r.ctx.Err() != nil {
			return f, false
		}
		if failed := err != nil; failed != failing {
			failing = failed
			r.failing(failed)
		}
		switch {
		case err != nil:
			if retry.Say() {
				r.logger.Warn("fetch failed, trying again", "offset", offset, "err", err)
			}
		case f.Corrupt != nil && try < corruptTries:
			r.logger.Warn("fetched records that cannot be read, trying again", "offset", offset, "err", f.Corrupt.Err)
		default:
			return f, true
		}
		if !Sleep(r.ctx, retry.NextBackOff()) {
			return orderclose.Fetched{}, false
		}
	}
}

// failing tells that fetches begin to fail now, or that they no longer do.
func (r *Reader) failing(failing bool) {
	var since time.Time
	if failing {
		since = time.Now()
	}
	r.m.FetchFailing(r.stage, r.claim.Topic, r.claim.Partition, since)
}

// BackOff is the pauses between tries that every loop uses: from 50 ms up to half a
// second, jittered, without end. After a broker has died nobody tells when its
// partitions have new leaders, and what is due waits for the next try.
type BackOff struct {
	*backoff.ExponentialBackOff
	said time.Time
}

// NewBackOff returns a BackOff that begins.
func NewBackOff() *BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 500*time.Millisecond
	b.Reset()
	return &BackOff{ExponentialBackOff: b}
}

// sayEvery is how often tries that fail are told of.
const sayEvery = 2 * time.Second

// Say reports whether a try that failed is worth a line in the log: the first is,
// and then one each two seconds.
func (b *BackOff) Say() bool {
	if !b.said.IsZero() && time.Since(b.said) < sayEvery {
		return false
	}
	b.said = time.Now()
	return true
}

// Sleep waits for d, or reports false as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Linger returns a context that outlives ctx by d: for work that should not be
// begun after ctx has ended, but should be finished if it was.
func Linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		Sleep(lingering, d)
		cancel()
	})
	return lingering, func() {
		stop()
		cancel()
	}
}
