package ops

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// ShadowClass says how the shadow run and the old job compare on one order. "We" is the pipeline of
// the shadow run, "they" the job that closes the orders.
type ShadowClass string

// The classes.
const (
	ShadowSame     ShadowClass = "same"      // both close it, at the same time within the tolerance
	ShadowEarlier  ShadowClass = "earlier"   // both close it, we earlier
	ShadowLater    ShadowClass = "later"     // both close it, we later
	ShadowOnlyWe   ShadowClass = "only_we"   // we would have closed it, and it is not closed
	ShadowOnlyThey ShadowClass = "only_they" // it is closed, and our records would not have closed it
	ShadowNeither  ShadowClass = "neither"   // nobody closes it
	ShadowRecent   ShadowClass = "recent"    // not compared: due a moment ago, and one side is missing
)

// ShadowDifference is one order that the two sides treat differently.
type ShadowDifference struct {
	Class   ShadowClass        `json:"class"`
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
func (d ShadowDifference) reason() string { return cmp.Or(string(d.Verdict), "no_record") }

// shadowVerdict is the verdict of the shadow run on an order; the zero value: there is none.
type shadowVerdict struct {
	verdict orderclose.Verdict
	at      time.Time // by the database's clock
}

// String says what the verdict is.
func (v shadowVerdict) String() string {
	if v.verdict == "" {
		return "no record of it was read"
	}
	return fmt.Sprintf("the verdict on its record is %s", v.verdict)
}

// shadowFacts are what one order is compared by, in addition to its row and its verdict.
type shadowFacts struct {
	now       time.Time
	tolerance time.Duration
}

// judgeShadow compares the verdict on an order with its row. Pure.
func judgeShadow(r store.ClosedRow, part store.AuditPart, v shadowVerdict, f shadowFacts) ShadowDifference {
	d := ShadowDifference{Order: r.ID, Due: r.Due.UTC(), Verdict: v.verdict, Status: part.Status, ClosedAt: r.ClosedAt}
	recent := r.Due.After(f.now.Add(-f.tolerance))
	// A closer waits for the due time of an order that is not due, and would have closed an order that
	// they had not closed before.
	ours := v.verdict == orderclose.Closed || v.verdict == orderclose.NotDue || v.verdict == orderclose.AlreadyClosed && part.State == store.AuditClosed
	if ours {
		d.At, d.Path = v.at, orderclose.PathPipeline
		if v.verdict != orderclose.Closed {
			d.At = later(v.at, r.Due.UTC())
		}
	}
	switch {
	case part.State == store.AuditClosed && ours:
		d.compareTimes(f.tolerance)
	case part.State == store.AuditClosed && recent && v.verdict == "", part.State == store.AuditOpen && recent:
		d.Class = ShadowRecent
	case part.State == store.AuditClosed:
		d.Class = ShadowOnlyThey
		d.What = fmt.Sprintf("they closed it%s; %s", atTime(r.ClosedAt), v)
	case part.State == store.AuditOpen && !ours:
		d.Class, d.Path = ShadowOnlyWe, orderclose.PathSweep
		d.What = fmt.Sprintf("only a sweep would have closed it: %s; it is %s", v, part.Status)
	case part.State == store.AuditOpen, v.verdict == orderclose.Closed:
		d.Class = ShadowOnlyWe
		d.What = fmt.Sprintf("we would have closed it at %s; it is %s", stamp(d.At), part.Status)
	default:
		d.Class = ShadowNeither
	}
	return d
}

// compareTimes sets the class of an order that both sides close.
func (d *ShadowDifference) compareTimes(tolerance time.Duration) {
	d.Class = ShadowSame
	if d.ClosedAt.IsZero() {
		return
	}
	by, word := d.ClosedAt.Sub(d.At), "before"
	if by < 0 {
		word = "after"
	}
	switch {
	case by > tolerance:
		d.Class = ShadowEarlier
	case by < -tolerance:
		d.Class = ShadowLater
	}
	d.What = fmt.Sprintf("we would have closed it at %s, %v %s they did", stamp(d.At), by.Abs().Round(time.Millisecond), word)
	if d.ClosedAt.Before(d.Due) {
		d.What += "; they closed it before it was due"
	}
}

// atTime returns " at" and the time, or nothing for the zero time.
func atTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + stamp(t)
}
