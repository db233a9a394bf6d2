package ops

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// OverdueGrace is how long an order may be due before it counts as overdue.
	OverdueGrace = compensator.Grace
	// fewOverdue is how many orders may be overdue while all is well: those that are retried, and those whose payment is pending. Retries end after 7 minutes.
	fewOverdue    = 10
	fewOverdueFor = 10 * time.Minute
)

// OverdueOrders are the unpaid orders that have been due for longer than OverdueGrace, by the database's clock.
// Orders that the mapping excludes are not among them.
type OverdueOrders struct {
	At     time.Time `json:"at"`     // when they were counted, by the database's clock; zero: they were not
	Orders int64     `json:"orders"` // without those in Paused
	// More says that the database has more than the thousand that were read, so Orders and Paused may be higher.
	More bool `json:"more"`
	// Categories has Orders by category. Categories that topics.yaml does not list are summed up as default, which is always there.
	Categories map[string]int64 `json:"categories"`
	Oldest     time.Time        `json:"oldest,omitzero"` // the earliest due time of Orders
	Paused     int64            `json:"paused"`          // orders that wait because somebody has paused closing
	// Example is the id of the one of Orders that became due last.
	Example string `json:"example,omitempty"`
	// Failure is why the oldest order cannot be closed; nil: that is not known.
	Failure  *wire.Failure `json:"failure,omitempty"`
	OldestID string        `json:"oldest_id,omitempty"` // of the order that was due at Oldest
	Pays     bool          `json:"-"`                   // the payment provider is asked before a close
}

// OverdueOrders counts the overdue orders in the database; with OwnStore it counts nothing, and At is zero. It reads at most a thousand of them. The error is
// ErrNoDatabase without a database, and wraps orderclose.ErrUnavailable if the database failed.
func (p Pipeline) OverdueOrders(ctx context.Context) (OverdueOrders, error) {
	if p.Store == nil {
		return OverdueOrders{}, ErrNoDatabase
	}
	if p.OwnStore {
		return OverdueOrders{}, p.Store.Ping(ctx)
	}
	list, err := p.ListOverdue(ctx)
	if err != nil {
		return OverdueOrders{}, err
	}
	return sumOverdue(list, p.Config.Delays.ByCategory), nil
}

// OverdueList has the orders that OverdueOrders counts.
type OverdueList struct {
	At     time.Time          // by the database's clock
	Orders []orderclose.Order // without those in Paused
	Paused []orderclose.Order // that wait because somebody has paused closing
	More   bool               // the database has more than the thousand that were read
}

// ListOverdue lists the overdue orders in Store, which is not nil, by due time. It reads at most a thousand: the oldest and the newest. The
// error wraps orderclose.ErrUnavailable if the database failed.
func (p Pipeline) ListOverdue(ctx context.Context) (l OverdueList, err error) {
	orders, now, more, err := p.Store.OverdueNow(ctx, OverdueGrace)
	if err != nil {
		return l, err
	}
	var pauses []wire.Pause
	if len(orders) > 0 {
		pauses, _ = p.Pauses(ctx) // if they are not known, the orders count as overdue
	}
	l = splitPaused(orders, pauses)
	l.At, l.More = now, more
	return l, nil
}

// splitPaused finds the orders that no closer may close now.
func splitPaused(orders []orderclose.Order, pauses []wire.Pause) (l OverdueList) {
	slices.SortStableFunc(orders, func(a, b orderclose.Order) int { return a.Due.Compare(b.Due) })
	for _, order := range orders {
		if slices.ContainsFunc(pauses, func(p wire.Pause) bool { return p.Covers(order.Category) }) {
			l.Paused = append(l.Paused, order)
		} else {
			l.Orders = append(l.Orders, order)
		}
	}
	return l
}

// failure returns why an order stays open: what a close meets now, and since when compensators have failed to close it, by the newest
// record that names it. It returns nil if the order is not overdue, or no cause is known. With try it may close the order and roll back: see store.WhyOpen.
func (p Pipeline) failure(ctx context.Context, order orderclose.CloseRequest, try bool) (f *wire.Failure) {
	if p.reachKafka(ctx) == nil {
		state, _ := p.Control.Read(ctx, time.Now()) // what it has read
		for _, s := range state.Sweeps {
			if i := slices.IndexFunc(s.Failures, func(f wire.Failure) bool { return f.OrderID == order.OrderID }); i >= 0 {
				f = &s.Failures[i]
				break
			}
		}
	}
	if !p.ClosesInDatabase() {
		return f
	}
	o, err := p.Store.WhyOpen(ctx, order, try)
	if cause, why := o.Why(); why != "" {
		f = cmp.Or(f, &wire.Failure{OrderID: order.OrderID})
		f.Cause, f.Error = string(cause), why
	} else if err == nil && try {
		return nil // it can be closed now
	}
	return f
}

// OverdueExplained is OverdueOrders, with Failure.
func (p Pipeline) OverdueExplained(ctx context.Context) (OverdueOrders, error) {
	o, err := p.OverdueOrders(ctx)
	o.Pays = p.Config.Closer.AsksPayment()
	if err == nil && o.Orders > 0 {
		o.Failure = p.failure(ctx, orderclose.CloseRequest{OrderID: o.OldestID, Due: o.Oldest}, false)
	}
	return o, err
}

// sumOverdue counts orders. listed has the categories of topics.yaml.
func sumOverdue(l OverdueList, listed map[string]time.Duration) (o OverdueOrders) {
	var example orderclose.Order
	o = OverdueOrders{At: l.At, More: l.More, Paused: int64(len(l.Paused)), Categories: map[string]int64{metrics.OtherCategories: 0}}
	for _, order := range l.Orders {
		name := order.Category
		if _, ok := listed[name]; !ok {
			name = metrics.OtherCategories
		}
		o.Orders++
		o.Categories[name]++
		if order.Due.After(example.Due) {
			example = order
		}
		if o.Oldest.IsZero() || order.Due.Before(o.Oldest) {
			o.Oldest, o.OldestID = order.Due, order.ID
		}
	}
	o.Example = example.ID
	return o
}

// Severity returns Urgent if many orders are overdue beside those that are dead letters, Today if a few have been for long, and otherwise "". No more than
// 1,000 orders are counted, so dead letters count as 900 at most, as in the alert OrdercloseOrdersOverdue.
func (o OverdueOrders) Severity(deadLetters int) Severity {
	switch {
	case o.Orders-int64(min(deadLetters, 900)) > fewOverdue:
		return Urgent
	case o.Orders > 0 && o.At.Sub(o.Oldest) > fewOverdueFor, o.locked():
		return Today
	}
	return ""
}

// locked reports whether a transaction of somebody else keeps the oldest order open.
func (o OverdueOrders) locked() bool {
	return o.Failure != nil && o.Failure.Cause == string(orderclose.Locked)
}

// why says what is possible.
func (o OverdueOrders) why() string {
	command := "orderclose order " + text.ShellQuote(o.Example)
	wait := "a retry"
	if o.Pays {
		wait = "a retry or for the payment provider"
	}
	return ": these orders wait for " + wait + ", the closers have acknowledged them without closing them, or their records are missing; which, says " + command
}

// strangers names the programs that are not orderclose and own partitions of a close topic. It returns "" if there are none.
func (r Status) strangers() string {
	var where []string
	owners := map[string]bool{}
	for _, t := range r.Topics {
		given := 0
		for _, p := range t.Partitions {
			if t.close && p.Owner != nil && !namesHost(p.Owner) {
				given++
				owners[MemberName(p.Owner)] = true
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

// databases says which databases the processes use, if they have different names.
func (r Status) databases() string {
	byName := map[string][]string{}
	for _, p := range r.Processes {
		if p.Database != "" && p.State == Present {
			name := p.Database[strings.LastIndex(p.Database, "/")+1:] // one server may have several addresses
			byName[name] = append(byName[name], p.Name)
		}
	}
	if len(byName) < 2 {
		return ""
	}
	text := "; the processes use different databases:"
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		text += fmt.Sprintf(" %s (%s)", name, strings.Join(byName[name], ", "))
	}
	return text
}

// String returns the numbers in one line.
func (o OverdueOrders) String() string {
	line := fmt.Sprint(o.Orders)
	if o.More {
		line = "at least " + line
	}
	if o.Orders > 0 {
		line += " (the oldest was due " + text.Stamp(o.Oldest)
		for _, c := range slices.Sorted(maps.Keys(o.Categories)) {
			line += fmt.Sprintf(", %d %s", o.Categories[c], c)
		}
		line += ")"
	}
	if o.Failure != nil {
		line += "; " + o.Failure.String()
	}
	if o.Paused > 0 {
		line += fmt.Sprintf(", and %d wait because closing is paused", o.Paused)
	}
	return line
}

// CountLate counts the late payments that nobody has resolved; with OwnStore it counts nothing. The error is
// ErrNoDatabase without a database, and wraps orderclose.ErrUnavailable if the database failed.
func (p Pipeline) CountLate(ctx context.Context) (store.LateSummary, error) {
	switch {
	case p.Store == nil:
		return store.LateSummary{}, ErrNoDatabase
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
		return nil, ErrNoDatabase
	}
	found, err := p.Store.LatePayments(ctx, all, LateListed)
	return append([]store.LatePayment{}, found...), err
}
