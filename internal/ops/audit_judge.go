package ops

import (
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

// FindingKind names a kind of difference between what is and what should be.
type FindingKind string

// The kinds.
const (
	StillOpen     FindingKind = "still_open"      // due, unpaid, and open beyond the bound
	NoReceipt     FindingKind = "no_receipt"      // closed without a receipt
	StrayReceipt  FindingKind = "stray_receipt"   // not closed, with a receipt
	Overwritten   FindingKind = "overwritten"     // closed, and the shop wrote another closed status over it
	PaidButClosed FindingKind = "paid_but_closed" // paid and closed
	ClosedEarly   FindingKind = "closed_early"    // closed before it was due
	LedgerMissing FindingKind = "ledger_missing"  // closed, and its stock was not released
	LedgerDouble  FindingKind = "ledger_double"   // the stock of a SKU was released more than once
	LedgerWrong   FindingKind = "ledger_wrong"    // another quantity was released, or without a close
)

// Finding is one difference.
type Finding struct {
	Kind  FindingKind `json:"kind"`
	Order string      `json:"order_id"`
	Due   time.Time   `json:"due_at"`
	What  string      `json:"what"` // what is and what should be
	Fix   string      `json:"fix"`  // what a person can do
}

// facts are what one order is judged by, in addition to its rows.
type facts struct {
	rules    store.AuditRules
	delays   orderclose.Delays // of topics.yaml
	receipts bool              // orders are closed in this database
	pays     bool              // the payment provider is asked before a close
	now      time.Time
	bound    time.Duration
	// tolerance is AuditOptions.Tolerance.
	tolerance time.Duration
	// Orders closed in these spans should have been asked about again, and were not.
	notRechecked []span
}

// span is a span of time: from is in it, to is not.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && at.Before(s.to) }

// judge compares the rows of one order with each other and with the facts. Pure.
func judge(r store.AuditRow, f facts) (found []Finding) {
	add := func(k FindingKind, fix, what string, args ...any) {
		found = append(found, Finding{k, r.ID, r.Due.UTC(), fmt.Sprintf(what, args...), fix})
	}
	if late := f.now.Sub(r.Due); r.Part.State == store.AuditOpen && late > f.bound {
		what := fmt.Sprintf("the order has been due for %v and is %s; the limit is %v", late.Round(time.Second), r.Part, f.bound)
		fix := " shows why; orderclose compensate closes it"
		if f.pays {
			fix = " shows why; orderclose compensate asks the payment provider, and closes it unless the provider says paid or has no answer"
		}
		add(StillOpen, "orderclose order "+text.ShellQuote(r.ID)+fix, "%s", what)
	}
	if !f.receipts {
		return found
	}
	k, what := judgeReceipt(r, f.rules)
	if k == Overwritten {
		add(k, "see whether its stock was returned twice, and let the program compare the status before it writes; if that is its task, add "+
			"overwritten_close to accept", "%s", what)
	} else if k != "" {
		add(k, "find the program that writes to the orders outside the shop's transactions; orderclose order "+text.ShellQuote(r.ID), "%s", what)
	}
	receipt := r.Receipt
	if receipt != nil && (receipt.ClosedAt.Before(receipt.Due) || f.rules.Exclusive && r.Part.State == store.AuditClosed && receipt.ClosedAt.Before(r.Due)) {
		add(ClosedEarly, "find out what changed its due time or the database's clock", "the order was closed at %s by %s, and was due at %s",
			text.Stamp(receipt.ClosedAt), receipt.Path, text.Stamp(later(receipt.Due, r.Due)))
	}
	closed := r.Part.State == store.AuditClosed && (receipt != nil || f.rules.Exclusive)
	if r.LinesError != nil {
		add(LedgerWrong, "fix the lines of the order", "released stock cannot be compared: %v", r.LinesError)
	} else if f.rules.Lines {
		for _, stock := range judgeStock(r, closed) {
			kind, what := FindingKind(stock.Kind), stock.What
			if !closed {
				kind, what = LedgerWrong, fmt.Sprintf("the order is %s, and no close may release its stock: %s", r.Part, what)
			}
			add(kind, stock.Fix, "%s", what)
		}
	}
	return found
}

// closedYoung reports whether an order was closed at less than half of its delay. The attributes of an order are not known here, so its delay
// is the shortest that a rule may give it. An order without a creation time has no age.
func (f facts) closedYoung(r store.AuditRow) bool {
	if !f.receipts || r.Receipt == nil || r.CreatedAt.IsZero() {
		return false
	}
	_, delay, _ := f.delays.Of(r.Category)
	for _, rule := range f.delays.Rules {
		if rule.After > 0 {
			delay = min(delay, rule.After)
		}
	}
	return r.Receipt.ClosedAt.Sub(r.CreatedAt) < delay/2
}

// judgeReceipt checks that an order has a receipt if it was closed, and only then.
func judgeReceipt(r store.AuditRow, rules store.AuditRules) (k FindingKind, what string) {
	has := r.Receipt != nil
	switch r.Part.State {
	case store.AuditClosed:
		if !has && rules.Exclusive {
			return NoReceipt, "the order is closed without a receipt, so the other rows of a close are missing too"
		}
		if r.PaidAt {
			return PaidButClosed, "the order was paid and is closed"
		}
	case store.AuditPaid:
		if has && !r.Reopened { // else a person has said so
			if r.Part.Unlisted { //mutant:unmapped-status-ignored
				return PaidButClosed, fmt.Sprintf("the order is %s, which orders.status does not name and which therefore counts as paid; it was closed at %s by %s",
					r.Part.Status, text.Stamp(r.Receipt.ClosedAt), r.Receipt.Path)
			}
			return PaidButClosed, fmt.Sprintf("the order is %s, and was closed at %s by %s", r.Part, text.Stamp(r.Receipt.ClosedAt), r.Receipt.Path)
		}
	case store.AuditOther:
		if has && rules.Exclusive {
			return StrayReceipt, fmt.Sprintf("the order is %s, and has the receipt of a close at %s", r.Part, text.Stamp(r.Receipt.ClosedAt))
		}
		if has && rules.Overwritten {
			return Overwritten, fmt.Sprintf("the order was closed at %s by %s, and another program wrote the status %s over it",
				text.Stamp(r.Receipt.ClosedAt), r.Receipt.Path, r.Part)
		}
	default:
		if has {
			return StrayReceipt, fmt.Sprintf("the order is open, and has the receipt of a close at %s", text.Stamp(r.Receipt.ClosedAt))
		}
	}
	return "", ""
}

// judgeStock judges the stock of an order. Of an order that was not closed it only requires that no
// close released stock. judgeReceipt reports a close without a receipt, which would say what it released, and a receipt without a close.
func judgeStock(r store.AuditRow, closed bool) []store.StockFinding {
	switch has := r.Receipt != nil; {
	case closed && has:
		return store.JudgeStock(r.LineQuantities, r.Ledger, "close")
	case closed || has:
		return nil
	}
	return store.JudgeStock(nil, slices.DeleteFunc(slices.Clone(r.Ledger), func(l store.LedgerRow) bool { return l.Kind != "close" }), "")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// count adds one order to the summary.
func (s *AuditSummary) count(r store.AuditRow, f facts) {
	s.Orders++
	s.Statuses[r.Part.Status]++
	switch {
	case r.Part.State == store.AuditOpen && f.now.Sub(r.Due) <= f.bound:
		s.OpenWithinBound++
	case r.Part.State == store.AuditExcluded:
		s.Excluded++
	case r.Part.State == store.AuditClosed && r.Receipt != nil:
		s.ClosedBy[r.Receipt.Path]++
	case r.Part.State == store.AuditClosed:
		s.ClosedByOthers.count(r, f.tolerance)
	}
	if f.closedYoung(r) {
		s.ClosedYoung++
		s.ClosedYoungNewest = latestDue(s.ClosedYoungNewest, r)
	}
	if r.Late > 0 {
		s.LatePayments++
	}
	if r.LateOpen > 0 {
		s.LateUnresolved++
	}
	if r.Receipt != nil && slices.ContainsFunc(f.notRechecked, func(in span) bool { return in.has(r.Receipt.ClosedAt) }) {
		s.NotRechecked++
	}
}

// count adds one order that another program has closed.
func (s *ByOthers) count(r store.AuditRow, tolerance time.Duration) {
	s.Orders++
	switch late := r.ClosedAt.Sub(r.Due); {
	case r.ClosedAt.IsZero():
		s.Untimed++
	case late < -tolerance:
		s.Early++
		s.EarlyNewest = latestDue(s.EarlyNewest, r)
	case late > tolerance:
		s.Late++
		s.LateNewest = latestDue(s.LateNewest, r)
		s.Latest = max(s.Latest, late.Seconds())
	default:
		s.OnTime++
	}
}

// latestDue returns the five orders with the latest due times of some and one more.
func latestDue(some []OrderDue, r store.AuditRow) []OrderDue {
	some = append(some, OrderDue{r.ID, r.Due})
	slices.SortStableFunc(some, func(a, b OrderDue) int { return b.Due.Compare(a.Due) })
	return some[:min(len(some), 5)]
}
