package backlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

// OverdueOrders are the unpaid orders that have been due for longer than compensator.Grace, by the database's clock.
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
	// Old is the number, up to 100, of orders that stay open because they were due long before the database was migrated, and OldIDs has five.
	Old    int64    `json:"old,omitempty"`
	OldIDs []string `json:"old_ids,omitempty"`
	// Example is the id of the one of Orders that became due last.
	Example string `json:"example,omitempty"`
	// Failures are what keeps a few of Orders open, one of each cause, that of the oldest order first; empty: no cause is known.
	Failures []compensator.Failure `json:"failures,omitempty"`
	OldestID string                `json:"oldest_id,omitempty"` // of the order that was due at Oldest
	// Closable says that a trial close of the oldest order has found nothing that keeps it open.
	Closable bool `json:"closable,omitempty"`
	Pays     bool `json:"-"` // the payment provider is asked before a close
}

// OverdueList has the orders that Count counts.
type OverdueList struct {
	At     time.Time          // by the database's clock
	Orders []orderclose.Order // without those in Paused
	Paused []orderclose.Order // that wait because somebody has paused closing
	Old    []orderclose.Order // at most 100 that stay open because they were due long before the database was migrated
	More   bool               // the database has more than the thousand that were read
}

// ListOverdue lists the orders that have been due for longer than grace, by due time. It reads at most a thousand: the oldest and the newest. The error wraps
// orderclose.ErrUnavailable if the database failed.
func ListOverdue(ctx context.Context, db *store.Store, grace time.Duration) (l OverdueList, err error) {
	orders, now, more, err := db.OverdueNow(ctx, grace)
	if err != nil {
		return l, err
	}
	var pauses []pausing.Pause
	if len(orders) > 0 {
		pauses, _ = db.Pauses(ctx) // if they are not known, the orders count as overdue
	}
	l = splitPaused(orders, pauses)
	l.At, l.More = now, more
	l.Old, err = db.OldOrders(ctx)
	return l, err
}

// splitPaused finds the orders that no closer may close now.
func splitPaused(orders []orderclose.Order, pauses []pausing.Pause) (l OverdueList) {
	slices.SortStableFunc(orders, func(a, b orderclose.Order) int { return a.Due.Compare(b.Due) })
	for _, order := range orders {
		if slices.ContainsFunc(pauses, func(p pausing.Pause) bool { return p.Covers(order.Category) }) {
			l.Paused = append(l.Paused, order)
		} else {
			l.Orders = append(l.Orders, order)
		}
	}
	return l
}

// Count counts the orders. listed has the categories of topics.yaml.
func (l OverdueList) Count(listed map[string]time.Duration) (o OverdueOrders) {
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
	o.Example, o.Old = example.ID, int64(len(l.Old))
	for _, order := range l.Old[:min(len(l.Old), 5)] {
		o.OldIDs = append(o.OldIDs, order.ID)
	}
	return o
}

// Locked reports whether a transaction of somebody else keeps one of the orders open.
func (o OverdueOrders) Locked() bool {
	return slices.ContainsFunc(o.Failures, func(f compensator.Failure) bool { return f.Cause == string(orderclose.Locked) })
}

// String returns the numbers in one line.
func (o OverdueOrders) String() string {
	line := fmt.Sprint(o.Orders)
	if o.More {
		line = "at least " + line
	}
	if o.Orders > 0 {
		line += " (the oldest, " + text.OneLine(o.OldestID, 64) + ", was due " + text.Stamp(o.Oldest)
		for _, c := range slices.Sorted(maps.Keys(o.Categories)) {
			line += fmt.Sprintf(", %d %s", o.Categories[c], c)
		}
		line += ")"
	}
	for _, f := range o.Failures {
		line += "; " + f.String()
	}
	if o.Paused > 0 {
		line += fmt.Sprintf(", and %d wait because closing is paused", o.Paused)
	}
	if o.Old > 0 {
		line += fmt.Sprintf("; %d old orders stay open, such as %s: orderclose runbook every-order-is-excluded", o.Old,
			text.OneLine(strings.Join(o.OldIDs, ", "), 200))
	}
	return line
}
