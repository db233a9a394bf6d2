package closer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// beatEvery is how often a loop that waits for the store calls Beat on its pulse.
const beatEvery = 5 * time.Second

// transactions runs the groups of the batcher through the store, finds the orders on which the store
// fails, counts the outcomes, and passes them to the loops that wait.
type transactions struct {
	batcher *batcher
	store   Store
	search  bisect.Search
	metrics *closerMetrics
	pauses  *pauseLog
	logger  *slog.Logger
	tracer  tracing.Tracer
	onHang  func() // is called if a transaction goes on long after its context has ended
}

// close closes the first of the requests, as many as the limiter allows when their group starts. again is that of a job. If ctx ends, close
// returns at once, and the orders may or may not be closed. close calls beat every few seconds, but stops when a call of the store ignores the
// end of its context. With an error, some orders or all have no verdict, and outcomes may be empty.
func (t *transactions) close(ctx context.Context, requests []orderclose.CloseRequest, again []string, beat func()) ([]orderclose.Outcome, error) {
	j := newJob(requests, again)
	t.start(t.batcher.add(j))
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.done:
			return j.outcomes, j.err
		case <-ctx.Done():
			t.start(t.batcher.leave(j))
			return nil, ctx.Err()
		case <-tick.C:
			if !t.batcher.hangs(j) {
				beat()
			}
		}
	}
}

func (t *transactions) start(groups []*group) {
	for _, g := range groups {
		go t.run(g)
	}
}

// run closes the orders of a group and gives each job its outcomes.
func (t *transactions) run(g *group) {
	requests := make([]orderclose.CloseRequest, 0, g.orders)
	for _, j := range g.jobs {
		requests = append(requests, j.requests...)
	}
	slow := time.AfterFunc(min(t.batcher.limiter.target, slotTime), func() { t.start(t.batcher.slow(g)) })
	returned := partition.WatchCall(g.ctx, t.onHang) // its worker serves nobody until it returns //mutant:close-hang-silent
	began := time.Now()
	ctx, traced := t.trace(g.ctx, requests)
	outcomes, err := t.search.Close(ctx, measuredStore{bisect.Wrapped{Store: t.store}, t.batcher, g}, orderclose.PathPipeline, requests)
	traced.end(outcomes, err)
	returned()
	slow.Stop()
	t.report(outcomes, err, began)
	for _, j := range g.jobs {
		n := len(j.requests)
		j.outcomes, j.err, outcomes = outcomes[:n:n], err, outcomes[n:]
		t.count(j)
		close(j.done)
	}
	t.start(t.batcher.ended(g))
}

// report takes note of pauses and outages.
func (t *transactions) report(outcomes []orderclose.Outcome, err error, began time.Time) {
	switch {
	case err == nil:
		t.metrics.batch.Observe(time.Since(began).Seconds())
		t.pauses.ended(began)
	case errors.Is(err, orderclose.ErrPaused):
		_, pause, _ := strings.Cut(err.Error(), orderclose.ErrPaused.Error()+" ")
		t.pauses.noted(pause)
	case errors.Is(err, orderclose.ErrUnavailable) && !slices.ContainsFunc(outcomes, hasVerdict):
		t.batcher.failed()
	}
}

// count counts the outcomes of a job.
func (t *transactions) count(j *job) {
	for i, o := range j.outcomes {
		if o.Verdict == "" {
			continue
		}
		closes := t.metrics.Closes
		if j.again[i] == wire.LaneReplay {
			closes = t.metrics.copies //mutant:replay-counts-late
		}
		closes.Verdict(o.Verdict)
		if j.again[i] != "" {
			closes = t.metrics.copies
		}
		if o.Verdict == orderclose.Closed {
			closes.Lateness(t.logger, j.requests[i].Category, j.requests[i].Traceparent, o)
		}
	}
}

// measuredStore is the Store of one group. The durations of its calls feed the limiter.
type measuredStore struct {
	bisect.Wrapped
	batcher *batcher
	group   *group
}

// CloseOrders implements Store. The limiter ignores a batch that failed, in which an order was
// contended, or for which the store broke its contract: its duration says nothing about the load
// of the store.
func (s measuredStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	defer s.group.pulse.Beat() // after a panic, too
	outcomes, err := s.Store.CloseOrders(ctx, path, requests)
	if err == nil {
		err = bisect.CheckOutcomes(requests, outcomes)
	}
	if err == nil && !slices.ContainsFunc(outcomes, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Contended }) {
		s.batcher.observe(began)
	}
	return outcomes, err
}
