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
	fetched  chan wire.Fetched // receives the result of each fetch
	lookBack time.Duration     // copied to each Position; set it before the first fetch

	ctx       context.Context
	stage     *Stage
	claim     wire.Claim
	logger    *slog.Logger
	next      int64
	formerEnd int64      // the end of the former owner's runs above next; 0 once they are verified
	log       wire.LogID // the log that the positions belong to
	gen       uint32     // generation of the log
	busy      bool
	wg        sync.WaitGroup
}

// newReader returns a reader of the claim for a stage. It ends with ctx. The caller must
// call wait before returning.
func newReader(ctx context.Context, s *Stage, claim wire.Claim, logger *slog.Logger) *reader {
	r := &reader{
		fetched: make(chan wire.Fetched, 1),
		ctx:     ctx, stage: s, claim: claim, logger: logger, next: claim.Offset, log: wire.DecodeLog(claim.Acked),
	}
	if runs := wire.DecodeRuns(claim.Offset, claim.Acked); len(runs) > 0 {
		r.formerEnd = runs[len(runs)-1].End
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
	at := wire.Position{Topic: r.claim.Topic, Partition: r.claim.Partition, Offset: r.next, Log: r.log, LookBack: r.lookBack}
	r.wg.Go(func() {
		if f, ok := r.fetch(at); ok {
			r.fetched <- r.withGeneration(f)
		}
	})
}

// read reads at a position. The first read verifies the runs of the former owner before: that
// the log still has the records they stand for. Otherwise other records at the same offsets
// would count as done.
func (r *reader) read(at wire.Position) (wire.Fetched, error) {
	if r.formerEnd > 0 { //mutant:done-of-other-log
		ahead := at
		ahead.Offset, ahead.NoWait, ahead.MaxBytes = r.formerEnd, true, 1
		f, err := r.stage.Log.Read(r.ctx, ahead)
		if err != nil || f.Replaced {
			return f, err
		}
		if f.Free != nil {
			f.Free()
		}
	}
	return r.stage.Log.Read(r.ctx, at)
}

// handleFetched notes that the result of the fetch was received. The loop must call it for each result.
func (r *reader) handleFetched(f wire.Fetched) {
	r.busy, r.log, r.gen, r.formerEnd, r.next = false, f.Log, f.Generation, 0, f.Next
}

// restart makes the next fetch start at an offset of a log that was replaced.
func (r *reader) restart(offset int64) { r.next = offset }

// withGeneration sets the generation of the result and of its records.
func (r *reader) withGeneration(f wire.Fetched) wire.Fetched {
	f.Generation = r.gen
	if f.Replaced {
		f.Generation++
	}
	for i := range f.Records {
		f.Records[i].Generation = f.Generation
	}
	return f
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
		f, err = r.read(at)
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
