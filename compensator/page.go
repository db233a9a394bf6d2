package compensator

import (
	"context"
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
	limiter  *rate.Limiter
	culprits *bisect.Culprits
	most     int // orders per page
	sizes    [kinds]int
}

func newPages(c *calls, o Options) *pages {
	limit := rate.Limit(o.Rate)
	if o.Rate < 0 {
		limit = rate.Inf
	}
	p := &pages{calls: c, limiter: rate.NewLimiter(limit, pagesAtOnce*o.PageSize), culprits: &bisect.Culprits{Logger: o.Logger}, most: o.PageSize}
	for k := range p.sizes {
		p.sizes[k] = o.PageSize
	}
	return p
}

// size returns how many orders a page of the kind has at most.
func (p *pages) size(k kind) int { return p.sizes[k] }

// single makes the next pages have one order, because the store gives no verdict.
func (p *pages) single() {
	for k := range kindHand {
		p.sizes[k] = 1
	}
}

// next returns the next pages of orders.
func (p *pages) next(k kind, orders []orderclose.Order) (next [][]orderclose.Order) {
	for len(next) < pagesAtOnce && len(orders) > 0 {
		n := min(p.sizes[k], len(orders)) //mutant:one-page-size
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

// wait waits until the rate allows the pages. It returns false if that takes longer than the given time.
func (p *pages) wait(ctx context.Context, pages [][]orderclose.Order, longest time.Duration) bool {
	orders := 0
	for _, page := range pages {
		orders += len(page)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	return p.limiter.WaitN(ctx, orders) == nil
}

// result is the result of a page. An outcome without a verdict says that the order may not have been tried.
type result struct {
	orders   []orderclose.Order
	outcomes []orderclose.Outcome
	err      error // why orders have no verdict
}

// close closes pages at the same time, and returns their results in the same order.
func (p *pages) close(ctx context.Context, k kind, pages [][]orderclose.Order) []result {
	results := make([]result, len(pages))
	took := make([]time.Duration, len(pages))
	var calls sync.WaitGroup
	for i, page := range pages {
		calls.Go(func() {
			began := time.Now()
			results[i] = p.closePage(ctx, k, page)
			took[i] = time.Since(began)
		})
	}
	calls.Wait()
	for i := range pages {
		p.sizes[k] = nextSize(p.sizes[k], p.most, took[i])
	}
	return results
}

// closePage closes one page. If the call fails, the orders that make it fail are searched for searchTime.
func (p *pages) closePage(ctx context.Context, k kind, page []orderclose.Order) result {
	search := searchTime
	if k == kindHand {
		search = handSearchTime
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due, Category: o.Category}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes, err := p.culprits.Close(ctx, &searched{calls: p.calls, limit: search, cancel: cancel}, orderclose.PathSweep, requests)
	return result{page, outcomes, err}
}

// searched is a Store that ends a search for the orders at fault some time after the first call that failed.
type searched struct {
	*calls
	limit  time.Duration
	cancel func()
	once   sync.Once
}

// CloseOrders implements Store.
func (s *searched) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := s.calls.CloseOrders(ctx, path, requests)
	if err != nil {
		s.once.Do(func() { time.AfterFunc(s.limit, s.cancel) }) //mutant:endless-search
	}
	return outcomes, err
}
