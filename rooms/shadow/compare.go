package shadow

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
)

// Class says how the shadow run and the old job compare on one order. "We" is the pipeline of
// the shadow run, "they" the job that closes the orders.
type Class string

// The classes.
const (
	Same     Class = "same"      // both close it, at the same time within the tolerance
	Earlier  Class = "earlier"   // both close it, we earlier
	Later    Class = "later"     // both close it, we later
	OnlyWe   Class = "only_we"   // we would have closed it, and it is not closed
	OnlyThey Class = "only_they" // it is closed, and our records would not have closed it
	Neither  Class = "neither"   // nobody closes it
	Recent   Class = "recent"    // not compared: due a moment ago, and one side is missing
)

// Difference is one order that the two sides treat differently.
type Difference struct {
	Class   Class              `json:"class"`
	Order   string             `json:"order_id"`
	Due     time.Time          `json:"due_at"`
	Verdict orderclose.Verdict `json:"verdict,omitempty"` // empty: no record of the order was read
	At      time.Time          `json:"at,omitzero"`       // when we would have closed it
	Path    orderclose.Path    `json:"path,omitempty"`    // how we would have closed it
	Status  string             `json:"status"`            // as the database stores it
	// ClosedAt is when they closed it; zero if they did not, or if it is not known.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	What     string    `json:"what"`
}

// reason returns why only they close the order: our verdict, or no_record.
func (d Difference) reason() string { return cmp.Or(string(d.Verdict), "no_record") }

// decided is the verdict of the shadow run on an order; the zero value: there is none.
type decided struct {
	verdict orderclose.Verdict
	at      time.Time // by the database's clock
}

// String says what the verdict is.
func (v decided) String() string {
	if v.verdict == "" {
		return "no record of it was read"
	}
	return fmt.Sprintf("the verdict on its record is %s", v.verdict)
}

// facts are what one order is compared by, in addition to its row and its verdict.
type facts struct {
	now       time.Time
	tolerance time.Duration
}

// compare compares the verdict on an order with its row. Pure.
func compare(r store.ClosedRow, part store.AuditPart, v decided, f facts) Difference {
	d := Difference{Order: r.ID, Due: r.Due.UTC(), Verdict: v.verdict, Status: part.Status, ClosedAt: r.ClosedAt}
	recent := r.Due.After(f.now.Add(-f.tolerance))
	// A closer waits for the due time of an order that is not due, and would have closed an order that
	// they had not closed before.
	ours := v.verdict == orderclose.Closed || v.verdict == orderclose.NotDue || v.verdict == orderclose.AlreadyClosed && part.State == store.AuditClosed
	if ours {
		d.At, d.Path = v.at, orderclose.PathPipeline
		if v.verdict != orderclose.Closed && r.Due.After(v.at) {
			d.At = r.Due.UTC()
		}
	}
	switch {
	case part.State == store.AuditClosed && ours:
		d.compareTimes(f.tolerance)
	case part.State == store.AuditClosed && recent && v.verdict == "", part.State == store.AuditOpen && recent:
		d.Class = Recent
	case part.State == store.AuditClosed:
		d.Class = OnlyThey
		d.What = fmt.Sprintf("they closed it%s; %s", atTime(r.ClosedAt), v)
	case part.State == store.AuditOpen && !ours:
		d.Class, d.Path = OnlyWe, orderclose.PathSweep
		d.What = fmt.Sprintf("only a sweep would have closed it: %s; it is %s", v, part.Status)
	case part.State == store.AuditOpen, v.verdict == orderclose.Closed:
		d.Class = OnlyWe
		d.What = fmt.Sprintf("we would have closed it at %s; it is %s", ops.Stamp(d.At), part.Status)
	default:
		d.Class = Neither
	}
	return d
}

// compareTimes sets the class of an order that both sides close.
func (d *Difference) compareTimes(tolerance time.Duration) {
	d.Class = Same
	if d.ClosedAt.IsZero() {
		return
	}
	by, word := d.ClosedAt.Sub(d.At), "before"
	if by < 0 {
		word = "after"
	}
	switch {
	case by > tolerance:
		d.Class = Earlier
	case by < -tolerance:
		d.Class = Later
	}
	d.What = fmt.Sprintf("we would have closed it at %s, %v %s they did", ops.Stamp(d.At), by.Abs().Round(time.Millisecond), word)
	if d.ClosedAt.Before(d.Due) {
		d.What += "; they closed it before it was due"
	}
}

// atTime returns " at" and the time, or nothing for the zero time.
func atTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + ops.Stamp(t)
}
