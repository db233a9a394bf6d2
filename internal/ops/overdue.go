package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

const (
	// OverdueGrace is how long an order may be due before it counts as overdue.
	OverdueGrace = compensator.Grace
	// fewOverdue is how many orders may be overdue while all is well: those that are retried, and those whose payment is pending. Retries end after 7 minutes.
	fewOverdue    = 10
	fewOverdueFor = 10 * time.Minute
	// tryAfter is for how long an order must be overdue for a trial close to explain it. Of the overdue orders some are tried, evenly from the oldest to
	// the newest, in tryTime.
	tryAfter, tries, tryTime = 15 * time.Second, 5, 3 * time.Second
)

// failure returns what a close of an order meets now; nil: no cause is known. With try it may close the order and roll back: see
// store.WhyOpen. closable says that this has found nothing that keeps the order open.
func (p Pipeline) failure(ctx context.Context, order orderclose.CloseRequest, try bool) (f *compensator.Failure, closable bool) {
	if !p.ClosesInDatabase() {
		return nil, false
	}
	o, err := p.Store.WhyOpen(ctx, order, try)
	if cause, why := o.Why(); why != "" {
		return &compensator.Failure{OrderID: order.OrderID, Cause: string(cause), Error: why}, false
	}
	return nil, err == nil && try
}

// failures returns what keeps a few of the orders open, one of each cause. closable says that the oldest can be closed.
func (p Pipeline) failures(ctx context.Context, list backlog.OverdueList) (all []compensator.Failure, closable bool) {
	n := min(tries, len(list.Orders))
	for i := range n {
		order := list.Orders[i*(len(list.Orders)-1)/max(n-1, 1)] // from the oldest to the newest
		f, can := p.failure(ctx, orderclose.CloseRequest{OrderID: order.ID, CreatedAt: order.CreatedAt, Due: order.Due}, list.At.Sub(order.Due) > tryAfter)
		if i == 0 {
			closable = can
		}
		if f != nil && !slices.ContainsFunc(all, func(known compensator.Failure) bool { return known.Cause == f.Cause }) {
			all = append(all, *f)
		}
	}
	return all, closable
}

// OverdueExplained counts the overdue orders in the database, and says why some of them stay open, after some time by trial closes that it
// rolls back; with OwnStore it counts nothing, and At is zero. It
// reads at most a thousand orders. The error is health.ErrNoDatabase without a database, and wraps orderclose.ErrUnavailable if the database failed.
func (p Pipeline) OverdueExplained(ctx context.Context) (o backlog.OverdueOrders, err error) {
	switch {
	case p.Store == nil:
		return o, health.ErrNoDatabase
	case p.OwnStore:
		return o, p.Store.Ping(ctx)
	}
	list, err := backlog.ListOverdue(ctx, p.Store, OverdueGrace)
	if err != nil {
		return o, err
	}
	o = list.Count(p.Config.Delays.ByCategory)
	o.Pays = p.Config.Closer.AsksPayment()
	if o.Orders > 0 {
		trying, cancel := context.WithTimeout(ctx, tryTime)
		defer cancel()
		o.Failures, o.Closable = p.failures(trying, list)
	}
	return o, nil
}

// overdueSeverity returns health.Urgent if many orders are overdue beside those that are dead letters, health.Today if a few have been for long, and
// otherwise "". No more than 1,000 orders are counted, so dead letters count as 900 at most, as in the alert OrdercloseOrdersOverdue.
func overdueSeverity(o backlog.OverdueOrders, deadLetters int) health.Severity {
	switch {
	case o.Orders-int64(min(deadLetters, 900)) > fewOverdue:
		return health.Urgent
	case o.Orders > 0 && o.At.Sub(o.Oldest) > fewOverdueFor, o.Locked():
		return health.Today
	}
	return ""
}

// waitsForProvider reports whether the oldest order is open because the payment provider has not said that it is unpaid.
func waitsForProvider(o backlog.OverdueOrders) bool { return o.Pays && o.Closable }

// possible says why orders may be overdue.
func possible(o backlog.OverdueOrders) string {
	command := "orderclose order " + text.ShellQuote(o.Example)
	wait := "a retry"
	if o.Pays {
		wait = "a retry or for the payment provider"
	}
	return ": these orders wait for " + wait + ", the closers have acknowledged them without closing them, or their records are missing; which, says " + command
}

// strangers names the programs that are not orderclose and own partitions of a close topic. It returns "" if there are none.
func strangers(r backlog.Status) string {
	var where []string
	owners := map[string]bool{}
	for _, t := range r.Topics {
		given := 0
		for _, p := range t.Partitions {
			if t.Closes && p.Owner != nil && !backlog.NamesHost(p.Owner) {
				given++
				owners[backlog.MemberName(p.Owner)] = true
			}
		}
		if given > 0 {
			where = append(where, fmt.Sprintf("%d of %d partitions of %s", given, len(t.Partitions), t.Topic))
		}
	}
	if len(where) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(owners))
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("%d more", len(owners)-3))
	}
	return fmt.Sprintf("; programs that are not orderclose have %s (%s): stop them first, not the closers", strings.Join(where, " and "),
		strings.Join(names, ", "))
}

// CountLate counts the late payments that nobody has resolved; with OwnStore it counts nothing. The error is
// health.ErrNoDatabase without a database, and wraps orderclose.ErrUnavailable if the database failed.
func (p Pipeline) CountLate(ctx context.Context) (store.LateSummary, error) {
	switch {
	case p.Store == nil:
		return store.LateSummary{}, health.ErrNoDatabase
	case p.OwnStore:
		return store.LateSummary{}, nil
	}
	return p.Store.CountLate(ctx)
}

// LateListed is how many late payments a list shows at most.
const LateListed = 1000

// LatePayments returns the late payments that nobody has resolved, or all, at most LateListed. The errors are those of CountLate.
func (p Pipeline) LatePayments(ctx context.Context, all bool) ([]store.LatePayment, error) {
	if p.Store == nil {
		return nil, health.ErrNoDatabase
	}
	found, err := p.Store.LatePayments(ctx, all, LateListed)
	return append([]store.LatePayment{}, found...), err
}
