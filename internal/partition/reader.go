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

// corruptTries is after how many answers with a batch that cannot be read the batch
// counts as damaged: the damage may happen on the way. Fetches that fail do not count.
const corruptTries = 3

// Log reads from a partition; see kafka.Cluster for the contract.
type Log interface {
	Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	Verify(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
}

// verifyEvery is how often the log of a partition is verified that is not read meanwhile.
const verifyEvery = time.Minute

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
	// LookBack is that of every Position; set it before the first Start.
	LookBack time.Duration

	ctx    context.Context
	source Log
	claim  orderclose.Claim
	stage  string
	m      ReaderMetrics
	logger *slog.Logger
	next   int64
	done   int64            // the end of what a former owner did ahead of next; 0 once it was verified
	log    orderclose.LogID // that next is an offset of
	gen    uint32           // of the log
	known  time.Time        // when the log was last known to be the same
	busy   bool
	under  sync.WaitGroup
}

// NewReader returns a Reader of the claim that ends with ctx, for a stage. Whoever
// makes one must Wait for it.
func NewReader(ctx context.Context, log Log, claim orderclose.Claim, stage string, m ReaderMetrics, logger *slog.Logger) *Reader {
	m.FetchFailing(stage, claim.Topic, claim.Partition, time.Time{})
	var done int64
	if runs := DecodeRuns(claim.Offset, claim.Acked); len(runs) > 0 {
		done = runs[len(runs)-1].End
	}
	return &Reader{
		C:   make(chan orderclose.Fetched, 1),
		ctx: ctx, source: log, claim: claim, next: claim.Offset, done: done, log: DecodeLog(claim.Acked),
		stage: stage, m: m,
		logger: logger.With("topic", claim.Topic, "partition", claim.Partition),
	}
}

// Start begins a fetch, unless one is under way.
func (r *Reader) Start() { r.begin(r.source.Read) }

// Verify begins to ask whether the log is still the one that was read, unless it was
// asked within a minute, or a fetch is under way. It is for a loop that does not want
// more for long: what a fetch finds out would come too late. If the log is the same, C
// brings an empty Fetched.
func (r *Reader) Verify() {
	if time.Since(r.known) >= verifyEvery {
		r.begin(r.source.Verify)
	}
}

type read = func(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)

func (r *Reader) begin(read read) {
	if r.busy {
		return
	}
	r.busy = true
	r.under.Go(func() {
		if f, ok := r.fetch(read); ok {
			r.C <- r.stamped(f)
		}
	})
}

// first is a read that verifies first that what a former owner did ahead of the position
// is of the log still: else other records, at the same offsets, would count as done.
func (r *Reader) first(read read) read {
	if r.done == 0 {
		return read
	}
	return func(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error) {
		ahead := at
		ahead.Offset = r.done
		f, err := r.source.Verify(ctx, ahead)
		if err != nil || f.Replaced {
			return f, err
		}
		return read(ctx, at)
	}
}

// Took notes that the result of the fetch was received from C.
func (r *Reader) Took(f orderclose.Fetched) {
	r.busy, r.next, r.log, r.gen = false, f.Next, f.Log, f.Generation
	r.known, r.done = time.Now(), 0
}

// stamped sets the generation of what was fetched.
func (r *Reader) stamped(f orderclose.Fetched) orderclose.Fetched {
	f.Generation = r.gen
	if f.Replaced {
		f.Generation++
	}
	for i := range f.Records {
		f.Records[i].Generation = f.Generation
	}
	return f
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
func (r *Reader) fetch(read read) (orderclose.Fetched, bool) {
	read, offset := r.first(read), r.next
	at := orderclose.Position{Topic: r.claim.Topic, Partition: r.claim.Partition, Offset: offset, Log: r.log, LookBack: r.LookBack}
	retry := NewBackOff()
	failing, corrupt := false, 0
	for {
		f, err := read(r.ctx, at)
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
		case f.Corrupt != nil && corrupt < corruptTries-1:
			corrupt++
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
