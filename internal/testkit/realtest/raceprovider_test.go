package realtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// faultsPerOrder is how many calls with one order may fail on purpose. The closer blames an order that fails alone while the service answers for other
// orders, and gives it up after four times. Without the limit, random faults would sometimes hit one order four times.
const faultsPerOrder = 2

// racedProvider is a payment provider that can cancel. Its ledger is what really happened to the money.
type racedProvider struct {
	// rows returns what the shop's table says of the payments of orders; an empty reference is a payment that is
	// being opened. nil: the shop has no table.
	rows  func(ctx context.Context, orders []string) (map[string][]string, error)
	calm  atomic.Bool // no more faults
	calls atomic.Int64

	mu      sync.Mutex
	ledger  map[string]*racedOrder
	faults  map[string]int // by order
	played  map[string]int // faults, by kind
	answers map[payment.Answer]int
}

// racedOrder is what the provider has of an order.
type racedOrder struct {
	open   map[string]page // payments that can succeed
	paid   []string        // payments that have succeeded
	inTime int             // how many of them the shop had opened before the due time
	opened int
}

// page is a payment page that can be paid.
type page struct {
	inTime bool // the shop has opened it before the due time
	known  bool // the provider finds it without the shop's table
}

// openedInTime reports whether a page that the shop has opened before the due time can be paid.
func (o *racedOrder) openedInTime() bool {
	for _, p := range o.open {
		if p.inTime {
			return true
		}
	}
	return false
}

// order returns what the provider has of an order. The caller holds p.mu.
func (p *racedProvider) order(id string) *racedOrder {
	if p.ledger[id] == nil {
		p.ledger[id] = &racedOrder{open: map[string]page{}}
	}
	return p.ledger[id]
}

// sent notes that the shop sends the customer to a page: its row names the page.
func (p *racedProvider) sent(order, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is, open := p.order(order).open[id]; open { // else the close has cancelled it meanwhile
		is.inTime = true
		p.order(order).open[id] = is
	}
}

// end ends a page that nobody was sent to.
func (p *racedProvider) end(order, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.order(order).open, id)
}

// begin opens a payment page.
func (p *racedProvider) begin(order string, is page) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.order(order)
	o.opened++
	id = fmt.Sprintf("%s-pay-%d", order, o.opened)
	o.open[id] = is
	return id
}

// pay reports whether a payment succeeds now.
func (p *racedProvider) pay(order, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.order(order)
	is, open := o.open[id]
	if !open {
		return false
	}
	if is.inTime {
		o.inTime++
	}
	delete(o.open, id)
	o.paid = append(o.paid, id)
	return true
}

// Ask implements payment.Provider.
func (p *racedProvider) Ask(ctx context.Context, ids []string) ([]payment.Answer, error) {
	return p.answer(ctx, ids, func(o *racedOrder, _ []string) payment.Answer {
		switch {
		case len(o.paid) > 0:
			return payment.Paid
		case len(o.open) > 0:
			return payment.Unknown
		}
		return payment.Unpaid
	})
}

// Cancel implements payment.Canceler. An order without a payment is cancelled at once: the shop's own data
// show that no page was opened. An order is unknown while a payment is being opened.
func (p *racedProvider) Cancel(ctx context.Context, ids []string) ([]payment.Answer, error) {
	return p.answer(ctx, ids, func(o *racedOrder, references []string) payment.Answer {
		maps.DeleteFunc(o.open, func(id string, is page) bool { return is.known || slices.Contains(references, id) })
		switch {
		case len(o.paid) > 0:
			return payment.Paid
		case slices.Contains(references, ""):
			return payment.Unknown
		}
		return payment.Cancelled
	})
}

// answer applies do to each order. Some calls are slow, fail, are answered when nobody waits any more, or lose
// their answer. The last three strike an order twice at most.
func (p *racedProvider) answer(ctx context.Context, ids []string, do func(o *racedOrder, references []string) payment.Answer) ([]payment.Answer, error) {
	fault := p.fault(ids)
	switch fault {
	case "slow":
		scenario.Pause(ctx, time.Duration(100+len(ids)*5)*time.Millisecond)
	case "failing":
		return nil, errors.New("on purpose")
	}
	var references map[string][]string
	if p.rows != nil {
		var err error
		if references, err = p.rows(ctx, ids); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		answers[i] = do(p.order(id), references[id])
		p.answers[answers[i]]++
	}
	p.mu.Unlock()
	switch fault {
	case "late":
		scenario.Pause(context.WithoutCancel(ctx), 3500*time.Millisecond) // longer than any call may take
	case "lost":
		panic(http.ErrAbortHandler)
	}
	return answers, nil
}

// fault returns the fault of this call; "" means none.
func (p *racedProvider) fault(ids []string) (kind string) {
	n := p.calls.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.calm.Load():
		return ""
	case n%9 == 0:
		kind = "slow"
	case n%13 == 0:
		kind = "failing"
	case n%17 == 0:
		kind = "lost"
	case n%29 == 0:
		kind = "late"
	default:
		return ""
	}
	if kind != "slow" {
		for _, id := range ids {
			if p.faults[id] >= faultsPerOrder {
				return ""
			}
		}
		for _, id := range ids {
			p.faults[id]++
		}
	}
	if p.played == nil {
		p.played = map[string]int{}
	}
	p.played[kind]++
	return kind
}
