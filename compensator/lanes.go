package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
)

const (
	// pagesAtOnce is how many pages of the fast lane are closed at the same time. Two transactions at once keep a database busy (make bench-close).
	pagesAtOnce = 2
	// slowShare is the part of the rate that the slow lane may use: a quarter.
	slowShare = 4
	// firstPage is the size of the first page of a process, and leastPage that after pages that failed.
	firstPage, leastPage = 32, 8
	// quickPage is how long a page takes at most after which the next one has twice as many orders, whatever these take.
	// After one that took slowPage, half as many are tried.
	quickPage, slowPage = 500 * time.Millisecond, 2 * time.Second
	// maxWaiting is how many orders may wait in the slow lane. Those of further pages that fail rest untried.
	maxWaiting = 20_000
	// If no order is closed or answered while some are asked alone, silentAlone of them, the turn fails. After silentFor the store counts as down.
	silentAlone = 3
	silentFor   = time.Minute
)

// pageSize is how many orders a page has. It grows while twice the orders do not take twice the time.
type pageSize struct {
	orders int
	last   int           // orders of the last page that succeeded
	took   time.Duration // the last page that succeeded
}

// succeeded takes note of a page. A page that had fewer orders than it might, because no more were overdue, shrinks no later one.
func (p *pageSize) succeeded(orders int, took time.Duration, most int) {
	last := pageSize{last: p.last, took: p.took}
	p.last, p.took = orders, took
	grown, less := min(max(p.orders, 2*orders), most), max(orders/2, 1)
	switch {
	case took <= quickPage || orders == 1:
		p.orders = grown
	case orders < p.orders && orders <= last.last:
	case orders == last.last && took <= slowPage:
		p.orders = grown
	case orders == last.last:
		p.orders = less // to see whether half takes half
	case pays(orders, took, last):
		p.orders = grown
	default:
		p.orders = less
	}
}

// pays reports whether the larger one of two pages took clearly less time for an order.
func pays(orders int, took time.Duration, last pageSize) bool {
	large, small := float64(took)/float64(orders), float64(last.took)/float64(max(last.last, 1))
	if orders < last.last {
		large, small = small, large
	}
	return large <= small*3/4
}

// tried is the result of a call: the outcomes of its orders, or an error. Then its orders failed: one alone, or several of which no part is tried now.
type tried struct {
	orders   []orderclose.Order
	outcomes []orderclose.Outcome
	err      error
}

// outcome returns the outcome of one of the orders.
func (r tried) outcome(i int) orderclose.Outcome {
	if r.err == nil {
		return r.outcomes[i]
	}
	return orderclose.Outcome{OrderID: r.orders[i].ID, Verdict: orderclose.Failed, Cause: bisect.CauseOf(r.err), Err: r.err}
}

// lanes close orders. The fast lane takes pages of orders that were never tried. The orders of a page that fails go to the slow lane, which finds
// those that are at fault, beside the turns of the loop. It also takes the orders that failed before, when their rest has ended.
type lanes struct {
	calls         *calls
	store         Store
	limiter, slow *rate.Limiter
	caller        bisect.Caller
	most          int // orders per page
	search        bisect.Lane[orderclose.Order]
	fast          pageSize // of the fast lane; belongs to its goroutine

	mu       sync.Mutex
	retry    pageSize       // of orders that rested
	inSlow   map[string]int // the ids of the orders that the slow lane has, and how often each has failed before
	rested   []rested       // orders whose rest has ended
	results  []tried        // of the slow lane, which no turn has noted yet
	answers  int64          // calls that succeeded
	answered time.Time      // the last one; before the first one: the begin
	pages    int            // of the fast lane that have failed since
	alone    int            // orders that have failed alone since
}

func newLanes(c *calls, o Options) *lanes {
	limit, slow, most := rate.Inf, rate.Inf, o.PageSize
	if o.Rate > 0 {
		limit, slow = rate.Limit(o.Rate), rate.Limit(o.Rate)/slowShare
		most = min(most, max(o.Rate/pagesAtOnce, 1)) // so that no turn waits for longer than a second for its pages
	}
	l := &lanes{calls: c, store: o.Store, limiter: rate.NewLimiter(limit, pagesAtOnce*most), slow: rate.NewLimiter(slow, most), most: most,
		caller: bisect.Caller{Logger: c.logger}, fast: pageSize{orders: min(firstPage, most)}, inSlow: map[string]int{}}
	l.retry = l.fast
	l.reset()
	l.search = bisect.Lane[orderclose.Order]{Call: l.callSlow, Failed: l.failedSlow, Again: l.nextRested, Calls: l.callsAtOnce}
	return l
}

// reset forgets for how long the store has been silent.
func (l *lanes) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered, l.pages, l.alone = time.Now(), 0, 0
}

// silent reports whether nothing has succeeded in either lane, though single orders were asked, and whether the store counts as down for that.
func (l *lanes) silent() (silent, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent = l.pages > 0 && l.alone >= silentAlone
	return silent, silent && time.Since(l.answered) >= silentFor
}

// callsAtOnce returns how many calls the slow lane may make at once.
func (l *lanes) callsAtOnce() int {
	if _, down := l.silent(); down {
		return 1
	}
	return bisect.LaneCalls
}

// has reports whether the slow lane has an order.
func (l *lanes) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, in := l.inSlow[id]
	return in
}

// next returns the next pages of the fast lane, each for one call. The store may take fewer orders for a while.
func (l *lanes) next(orders []orderclose.Order) (next [][]orderclose.Order) {
	size := l.size(l.fast)
	for len(next) < pagesAtOnce && len(orders) > 0 {
		n := min(size, len(orders)) //mutant:one-page-size
		next, orders = append(next, orders[:n]), orders[n:]
	}
	return next
}

// size returns how many orders a call may have now.
func (l *lanes) size(p pageSize) int {
	n := min(p.orders, l.most)
	if limit := bisect.MaxBatch(l.store); limit > 0 {
		n = min(n, limit)
	}
	return n
}

// close closes the first pages of orders at the same time, and returns their results in the same order. It returns none if the rate does not
// allow the pages until the given time.
func (l *lanes) close(ctx context.Context, orders []orderclose.Order, until time.Time) []tried {
	if _, down := l.silent(); down {
		orders = orders[:1]
	}
	pages, n := l.next(orders), 0
	for _, page := range pages {
		n += len(page)
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if l.limiter.WaitN(limited, n) != nil {
		return nil
	}
	results, took := make([]tried, len(pages)), make([]time.Duration, len(pages))
	var calls sync.WaitGroup
	for i, page := range pages {
		calls.Go(func() { results[i], took[i] = l.call(ctx, page) })
	}
	calls.Wait()
	slowest := 0
	for i := range results {
		if results[i].err != nil {
			l.failedFast(results[i])
			l.fast.orders = min(l.fast.orders, max(len(pages[i])/4, min(leastPage, l.most)))
			return results
		}
		if took[i] > took[slowest] {
			slowest = i
		}
	}
	l.fast.succeeded(len(pages[slowest]), took[slowest], l.most)
	return results
}

// failedFast counts a page of the fast lane that failed.
func (l *lanes) failedFast(r tried) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	if len(r.orders) == 1 {
		l.alone++
	}
}

// give gives the orders of a page that failed to the slow lane. It reports whether there was room.
func (l *lanes) give(orders []orderclose.Order) bool {
	if l.search.Waiting() >= maxWaiting {
		return false
	}
	l.mu.Lock()
	for _, o := range orders {
		l.inSlow[o.ID] = 0
	}
	l.mu.Unlock()
	l.search.Add(orders)
	return true
}

// offer says of which orders the rest has ended. The slow lane takes them as pages.
func (l *lanes) offer(orders []rested) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rested = orders
}

// nextRested returns the next page of orders whose rest has ended: the first ones that are searched, or not, as the first one is.
func (l *lanes) nextRested() (page []orderclose.Order, skip bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.size(l.retry)
	skip = len(l.rested) > 0 && l.rested[0].skip
	l.rested = slices.DeleteFunc(l.rested, func(r rested) bool {
		if r.skip != skip || len(page) == most {
			return false
		}
		page, l.inSlow[r.order.ID] = append(page, r.order), r.failed
		return true
	})
	return page, skip
}

// succeeded returns how many calls have succeeded.
func (l *lanes) succeeded() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers
}

// noted returns the results of the slow lane since the last call.
func (l *lanes) noted() []tried {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := l.results
	l.results = nil
	for _, r := range results {
		for _, o := range r.orders {
			delete(l.inSlow, o.ID)
		}
	}
	return results
}

// stop stops the slow lane, and forgets the orders that wait in it.
func (l *lanes) stop() {
	l.offer(nil)
	forgotten := l.search.Clear()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range forgotten {
		delete(l.inSlow, o.ID)
	}
}

// callSlow makes a call of the slow lane. It does not open the breaker of an HTTP service.
func (l *lanes) callSlow(ctx context.Context, orders []orderclose.Order) error {
	if err := l.slow.WaitN(ctx, len(orders)); err != nil {
		return err
	}
	if err := l.limiter.WaitN(ctx, len(orders)); err != nil {
		return err
	}
	r, took := l.call(bisect.Searching(ctx, len(orders) == 1), orders)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.err == nil:
		l.results = append(l.results, r)
		l.retry.succeeded(len(orders), took, l.most)
	case took > quickPage:
		l.retry.orders = min(l.retry.orders, max(len(orders)/2, min(leastPage, l.most)))
	}
	return r.err
}

// failedSlow takes orders of which the slow lane tries no part any more.
func (l *lanes) failedSlow(orders []orderclose.Order, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.results = append(l.results, tried{orders: orders, err: err}); len(orders) == 1 {
		l.alone++
	}
}

// call makes one call of the store, within its limit of time.
func (l *lanes) call(ctx context.Context, orders []orderclose.Order) (r tried, took time.Duration) {
	requests := make([]orderclose.CloseRequest, len(orders))
	for i, o := range orders {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due, Category: o.Category}
	}
	l.mu.Lock()
	failed := l.inSlow[orders[0].ID]
	l.mu.Unlock()
	if r.orders = orders; len(orders) > 1 {
		failed = 0
	}
	_ = l.calls.within(hangTimeout, "the store's method CloseOrders", func() error {
		r.outcomes, took, r.err = l.caller.Close(ctx, l.store, orderclose.PathSweep, requests, l.caller.Limit(l.store, len(orders), failed))
		return nil
	})
	if r.err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answers++
		l.answered, l.pages, l.alone = time.Now(), 0, 0
	}
	return r, took
}

var errNoAnswer = errors.New("the store gives no answer on any order")

// errSilent is the error of a turn in which no order gets an answer.
func errSilent(err error) error {
	return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, errNoAnswer, err)
}
