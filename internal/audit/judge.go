package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"orderclose/internal/store"
	"orderclose/internal/story"
)

// Kind is a difference between what should be and what is, in a word.
type Kind string

// The kinds.
const (
	StillOpen     Kind = "still_open"      // due, unpaid, and open beyond the bound
	NoReceipt     Kind = "no_receipt"      // closed, and there is no receipt of it
	StrayReceipt  Kind = "stray_receipt"   // a receipt, and the order is not closed
	PaidButClosed Kind = "paid_but_closed" // it was paid, and closed as well
	ClosedEarly   Kind = "closed_early"    // closed before it was due
	LedgerMissing Kind = "ledger_missing"  // closed, and what it held never came back
	LedgerDouble  Kind = "ledger_double"   // it came back more than once
	LedgerWrong   Kind = "ledger_wrong"    // it came back in another quantity, or without a close
	NoEvent       Kind = "no_event"        // closed, and no event tells of it
)

// Finding is a difference.
type Finding struct {
	Kind  Kind      `json:"kind"`
	Order string    `json:"order_id"`
	Due   time.Time `json:"due_at"`
	What  string    `json:"what"` // what is and what should be
	Mend  string    `json:"mend"` // what a person can do
}

// facts are what one order is judged by, beside its rows.
type facts struct {
	rules    store.AuditRules
	receipts bool // closing is done in this database
	now      time.Time
	bound    time.Duration
	// Events of closes in [eventsFrom, eventsTo] are known; both zero: none are.
	eventsFrom, eventsTo time.Time
	event                bool   // there is one, in the outbox or in Kafka
	letter               string // its pending dead letter; empty: there is none, or nobody asked
	eventLetter          string // the same of its event
}

// judge compares what there is of one order. Pure.
func judge(r store.AuditRow, f facts) (found []Finding) {
	add := func(k Kind, mend, what string, args ...any) {
		found = append(found, Finding{k, r.ID, r.Due.UTC(), fmt.Sprintf(what, args...), mend})
	}
	if late := f.now.Sub(r.Due); r.Part.State == store.AuditOpen && late > f.bound {
		what := fmt.Sprintf("it has been due for %v and is %s, where %v are allowed", late.Round(time.Second), r.Part.Status, f.bound)
		if f.letter != "" {
			what += "; its record is the dead letter " + f.letter
		}
		add(StillOpen, "orderclose order "+story.Word(r.ID)+" tells why; orderclose compensate --once closes it", "%s", what)
	}
	if !f.receipts {
		return found
	}
	if k, what := judgeReceipt(r, f.rules.Exclusive); k != "" {
		add(k, "find out who writes to the orders past the shop's transactions; orderclose order "+story.Word(r.ID), "%s", what)
	}
	receipt := r.Receipt
	if receipt != nil && (receipt.ClosedAt.Before(receipt.Due) || f.rules.Exclusive && r.Part.State == store.AuditClosed && receipt.ClosedAt.Before(r.Due)) {
		add(ClosedEarly, "find out who changed its due time, or the database's clock", "it was closed at %s by %s, and due at %s",
			stamp(receipt.ClosedAt), receipt.Path, stamp(later(receipt.Due, r.Due)))
	}
	closed := r.Part.State == store.AuditClosed && (receipt != nil || f.rules.Exclusive)
	if r.LinesError != nil {
		add(LedgerWrong, "mend the lines of the order", "what came back cannot be compared: %v", r.LinesError)
	} else if f.rules.Lines {
		for _, l := range judgeLedger(r, closed) {
			add(l.kind, "orderclose doctor --stock says what to change", "%s", l.what)
		}
	}
	switch none := closed && receipt != nil && f.told(receipt.ClosedAt) && !f.event; {
	case none && f.eventLetter != "":
		add(NoEvent, "orderclose dlq show "+f.eventLetter+" tells why; mend that, then orderclose dlq redrive --order "+story.Word(r.ID),
			"it was closed at %s and nothing tells of it but the dead letter %s", stamp(receipt.ClosedAt), f.eventLetter)
	case none:
		add(NoEvent, "tell its readers by hand: the event is neither in the outbox nor in Kafka", "it was closed at %s and nothing tells of it", stamp(receipt.ClosedAt))
	}
	return found
}

// told says whether the event of a close at that time should be known.
func (f facts) told(at time.Time) bool {
	return !f.eventsTo.IsZero() && !at.Before(f.eventsFrom) && !at.After(f.eventsTo)
}

// judgeReceipt says whether an order has a receipt just if it was closed.
func judgeReceipt(r store.AuditRow, exclusive bool) (k Kind, what string) {
	has := r.Receipt != nil
	switch r.Part.State {
	case store.AuditClosed:
		if !has && exclusive {
			return NoReceipt, "it is closed without a receipt, and so without what a close writes"
		}
		if r.PaidAt {
			return PaidButClosed, "it was paid, and is closed all the same"
		}
	case store.AuditPaid:
		if has {
			if r.Part.Unlisted {
				return PaidButClosed, fmt.Sprintf("it is %s, which orders.status does not name and so counts as paid, and was closed at %s by %s", r.Part.Status, stamp(r.Receipt.ClosedAt), r.Receipt.Path)
			}
			return PaidButClosed, fmt.Sprintf("it is %s, and was closed at %s by %s", r.Part.Status, stamp(r.Receipt.ClosedAt), r.Receipt.Path)
		}
	case store.AuditOther:
		if has && exclusive {
			return StrayReceipt, fmt.Sprintf("it is %s, and has the receipt of a close at %s", r.Part.Status, stamp(r.Receipt.ClosedAt))
		}
	default:
		if has {
			return StrayReceipt, fmt.Sprintf("it is open, and has the receipt of a close at %s", stamp(r.Receipt.ClosedAt))
		}
	}
	return "", ""
}

// line is a difference of one SKU.
type line struct {
	kind Kind
	what string
}

// judgeLedger compares what an order held with what came back. Of orders that were not
// closed it only sees that no close gave something back.
func judgeLedger(r store.AuditRow, closed bool) (found []line) {
	moved := map[string][]store.LedgerRow{}
	for _, l := range r.Ledger {
		if closed || l.Kind == "close" {
			moved[l.SKU] = append(moved[l.SKU], l)
		}
	}
	skus := map[string]bool{}
	for sku := range moved {
		skus[sku] = true
	}
	if closed {
		for sku := range r.Held {
			skus[sku] = true
		}
	}
	for _, sku := range slices.Sorted(maps.Keys(skus)) {
		rows, held := moved[sku], r.Held[sku]
		switch {
		case !closed && r.Receipt == nil:
			found = append(found, line{LedgerWrong, fmt.Sprintf("%s came back by a close, and it is %s", written(rows), r.Part.Status)})
		case !closed: // the receipt is a finding
		case len(rows) == 0:
			found = append(found, line{LedgerMissing, fmt.Sprintf("%d of %s never came back", held, sku)})
		case len(rows) > 1:
			found = append(found, line{LedgerDouble, fmt.Sprintf("%d of %s came back more than once: %s", held, sku, written(rows))})
		case rows[0].Kind != "close" || rows[0].Quantity != held:
			found = append(found, line{LedgerWrong, fmt.Sprintf("%d of %s should have come back: %s did", held, sku, written(rows))})
		}
	}
	return found
}

func written(rows []store.LedgerRow) string {
	words := make([]string, len(rows))
	for i, l := range rows {
		words[i] = fmt.Sprintf("%s %d of %s", l.Kind, l.Quantity, l.SKU)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// count adds one order to the summary.
func (s *Summary) count(r store.AuditRow, f facts, seen, seenKnown bool) {
	s.Orders++
	s.Statuses[r.Part.Status]++
	switch {
	case r.Part.State == store.AuditOpen && f.now.Sub(r.Due) <= f.bound:
		s.OpenWithinBound++
	case r.Part.State == store.AuditClosed && r.Receipt != nil:
		s.ClosedBy[r.Receipt.Path]++
		if !f.told(r.Receipt.ClosedAt) {
			s.EventsUnjudged++
		}
	case r.Part.State == store.AuditClosed:
		s.ClosedByOthers++
	}
	if seenKnown && !seen && r.Part.State == store.AuditClosed {
		s.NoRecord++
	}
	if f.letter != "" || f.eventLetter != "" {
		s.DeadLetters++
	}
}
