package partition

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// reader reads a claim forward, with at most one fetch in flight. The reader
// belongs to the goroutine of the claim's loop. The fetch runs in another goroutine and passes
// its result through fetched.
//
//	r.start()                     // to fetch more
//	select { case f := <-r.fetched: r.handleFetched(f) … }
//	r.wait()                      // after ctx has ended, before returning
type reader struct {
	fetched chan wire.Fetched // receives the result of each fetch

	ctx    context.Context
	stage  *Stage
	claim  wire.Claim
	logger *slog.Logger
	next   int64
	log    wire.LogID // the log that the position belongs to; zero: not read yet
	busy   bool
	wg     sync.WaitGroup
}

// newReader returns a reader of the claim for a stage. It ends with ctx. The caller must
// call wait before returning.
func newReader(ctx context.Context, s *Stage, claim wire.Claim, logger *slog.Logger) *reader {
	r := &reader{
		fetched: make(chan wire.Fetched, 1),
		ctx:     ctx, stage: s, claim: claim, logger: logger, next: claim.Offset,
		log: wire.LogID{Topic: claim.Log.Topic, Epoch: -1},
	}
	r.failing(time.Time{})
	return r
}

// start starts a fetch of the next records, unless a fetch is in flight. If there are none, the
// fetch waits for them.
func (r *reader) start() {
	if r.busy {
		return
	}
	r.busy = true
	at := wire.Position{Topic: r.claim.Topic, Partition: r.claim.Partition, Offset: r.next, Log: r.log}
	r.wg.Go(func() {
		if f, ok := r.fetch(at); ok {
			r.fetched <- f
		}
	})
}

// handleFetched notes that the result of the fetch was received. The loop must call it for each result.
func (r *reader) handleFetched(f wire.Fetched) {
	r.busy, r.log, r.next = false, f.Log, f.Next
}

// wait waits for the fetch in flight, which is the last one. Its result stays in fetched,
// unread.
func (r *reader) wait() {
	r.wg.Wait()
	r.stage.Metrics.FetchEnded(r.stage.Name, r.claim.Topic, r.claim.Partition)
}

// fetch retries until it has a result, or returns false when ctx ends.
func (r *reader) fetch(at wire.Position) (f wire.Fetched, ok bool) {
	fails := false
	ok = retry.Do(r.ctx, r.logger.With("offset", at.Offset), "fetch", func(context.Context) (err error) {
		f, err = r.stage.Log.Read(r.ctx, at)
		switch {
		case r.ctx.Err() != nil:
		case err == nil && fails:
			r.failing(time.Time{})
		case err != nil && !fails:
			r.failing(time.Now())
		}
		fails = err != nil
		return err
	})
	return f, ok
}

// failing reports to the metrics since when fetches fail; zero: they succeed.
func (r *reader) failing(since time.Time) {
	r.stage.Metrics.FetchFailing(r.stage.Name, r.claim.Topic, r.claim.Partition, since)
}
