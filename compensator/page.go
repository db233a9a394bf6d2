package compensator

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
)

const (
	// pagesAtOnce is how many pages are closed at the same time. Two transactions at once keep a database busy (make bench-close).
	pagesAtOnce = 2
	// A page of its kind has half as many orders after one that took slowPage, and twice as many after one that took quickPage at most.
	slowPage, quickPage = 2 * time.Second, 500 * time.Millisecond
	// searchTime is how long the orders are searched on which a page fails. What is not reached was not asked for.
	searchTime = 2 * time.Second
	// handSearchTime is searchTime of a pass by hand, which keeps nobody waiting.
	handSearchTime = time.Minute
)

// kind is a kind of orders. Each has a size of pages of its own, so slow ones do not make the pages of quick ones small.
type kind int

// The kinds.
const (
	kindNews kind = iota
	kindOlder
	kindRested
	kindHand  // of a pass by hand
	kindProbe // an order that shows whether the store works
	kinds
)

// pages closes orders in pages. The size of a page belongs to the goroutine that asks for its kind.
type pages struct {
	calls    *calls
	store    Store
	limiter  *rate.Limiter
	culprits *bisect.Culprits
	most     int        // orders per page
	sizes    [kinds]int // 0: most
}

func newPages(c *calls, o Options) *pages {
	limit, most := rate.Inf, o.PageSize
	if o.Rate > 0 {
		limit, most = rate.Limit(o.Rate), min(most, max(o.Rate/pagesAtOnce, 1)) // so that no turn waits for longer than a second for its pages
	}
	return &pages{calls: c, store: o.Store, limiter: rate.NewLimiter(limit, pagesAtOnce*most), culprits: &bisect.Culprits{Logger: o.Logger}, most: most}
}

// next returns the next pages of orders, each for one call: so a page takes as long as a call. The store may take fewer orders for a while.
func (p *pages) next(k kind, orders []orderclose.Order) (next [][]orderclose.Order) {
	for len(next) < pagesAtOnce && len(orders) > 0 {
		n := min(cmp.Or(p.sizes[k], p.most), cmp.Or(bisect.MaxBatch(p.store), p.most), len(orders)) //mutant:one-page-size
		next, orders = append(next, orders[:n]), orders[n:]
	}
	return next
}

// nextSize returns the size of the next page after one that took some time.
func nextSize(size, most int, took time.Duration) int {
	switch {
	case took >= slowPage:
		return max(size/2, 1)
	case took <= quickPage:
		return min(2*size, most)
	}
	return size
}

// result is the result of a page. An outcome without a verdict says that the order may not have been tried.
type result struct {
	orders   []orderclose.Order
	outcomes []orderclose.Outcome
	err      error // why orders have no verdict
	took     time.Duration
}

// close closes the first pages of orders at the same time, and returns their results in the same order. It returns none if the rate does not
// allow the pages within the given time.
func (p *pages) close(ctx context.Context, k kind, orders []orderclose.Order, longest time.Duration) []result {
	pages, n := p.next(k, orders), 0
	for _, page := range pages {
		n += len(page)
	}
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if p.limiter.WaitN(limited, n) != nil {
		return nil
	}
	results := make([]result, len(pages))
	var calls sync.WaitGroup
	for i, page := range pages {
		calls.Go(func() { results[i] = p.closePage(ctx, k, page) })
	}
	calls.Wait()
	slowest := slices.MaxFunc(results, func(a, b result) int { return cmp.Compare(a.took, b.took) })
	p.sizes[k] = nextSize(cmp.Or(p.sizes[k], p.most), p.most, slowest.took)
	return results
}

// closePage closes one page. If the call fails, the orders that make it fail are searched for searchTime.
func (p *pages) closePage(ctx context.Context, k kind, page []orderclose.Order) result {
	began, search := time.Now(), searchTime
	if k == kindHand {
		search = handSearchTime
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due, Category: o.Category}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes, err := p.culprits.Close(ctx, &searched{pages: p, limit: search, cancel: cancel}, orderclose.PathSweep, requests)
	return result{page, outcomes, err, time.Since(began)}
}

// searched is the Store of one page. It limits each call, and ends a search for the orders at fault some time after the first call that failed.
type searched struct {
	*pages
	limit  time.Duration
	cancel func()
	once   sync.Once
}

// CloseOrders implements bisect.Store.
func (s *searched) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) (outcomes []orderclose.Outcome, err error) {
	err = s.calls.call(ctx, closeOrders, func(ctx context.Context) (err error) {
		outcomes, err = s.store.CloseOrders(ctx, path, requests)
		return err
	})
	if err != nil {
		s.once.Do(func() { time.AfterFunc(s.limit, s.cancel) }) //mutant:endless-search
	}
	return outcomes, err
}

// Probe implements bisect.Prober.
func (s *searched) Probe(ctx context.Context) error {
	return s.calls.call(ctx, "the store's method Probe", func(ctx context.Context) error { return bisect.Probe(ctx, s.store) })
}
