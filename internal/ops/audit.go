package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

// AuditStore is what an audit asks the database. store.Store implements it.
type AuditStore interface {
	Now(ctx context.Context) (time.Time, error)
	AuditRules() store.AuditRules
	AuditParts(ctx context.Context) ([]store.AuditPart, error)
	CanAudit(ctx context.Context) error
	// AuditPage reads a page of the orders behind an order.
	AuditPage(ctx context.Context, part store.AuditPart, from, to time.Time, after orderclose.Order, limit int) ([]store.AuditRow, error)
	// AuditClosed reads a page of the orders that were closed in a span of time, whenever they are due.
	AuditClosed(ctx context.Context, from, to time.Time, after store.ReceiptKey, limit int) (rows []store.AuditRow, last store.ReceiptKey, err error)
	Rechecked(ctx context.Context, name string, step time.Duration) (until, now time.Time, err error)
}

// AuditOptions for Audit. Store, Config, From, To, Bound and OnFinding must be set.
type AuditOptions struct {
	Store AuditStore
	// From and To are the window of due times, [From, To). Orders that were closed in it are judged too, whenever they are due now.
	From, To time.Time
	// Bound is how long a due order may stay open.
	Bound time.Duration
	// Tolerance is how far a close by others may be from its due time to count as on time.
	Tolerance time.Duration
	// Config says whether orders are closed in this database, so that it holds receipts and ledger rows.
	Config *config.Config

	// OnFinding is called with each finding at once, by one goroutine. Its error ends the audit.
	OnFinding func(Finding) error
	// Progress, if not nil, is called with a text about how far the audit is.
	Progress func(text string)
}

// AuditSummary is the result of an audit.
type AuditSummary struct {
	From  time.Time `json:"from"` // window of due times
	To    time.Time `json:"to"`
	At    time.Time `json:"at"` // when the audit began, by the database's clock
	Bound string    `json:"bound"`

	Orders   int            `json:"orders"` // due in the window
	Statuses map[string]int `json:"statuses"`
	// Unlisted holds the statuses that orders have and the mapping does not name, each with the state it counts as: paid or other.
	Unlisted map[string]store.AuditState `json:"unlisted"`
	// ClosedBy counts the orders with a receipt by the path of their close. The path sweep counts orders that the pipeline missed.
	ClosedBy map[orderclose.Path]int `json:"closed_by"`
	// ClosedElsewhere counts the orders that were closed in the window, and are due at another time now, or never. They are
	// judged, and no other number has them.
	ClosedElsewhere int      `json:"closed_due_elsewhere"`
	ClosedByOthers  ByOthers `json:"closed_by_others"`
	OpenWithinBound int      `json:"open_within_bound"`
	// ClosedYoung counts the orders that were closed at less than half of the delay of their category or a rule: a checkout has a wrong clock, or
	// their due times were moved earlier. ClosedYoungNewest has up to five of them, the latest due time first.
	ClosedYoung       int        `json:"closed_young"`
	ClosedYoungNewest []OrderDue `json:"closed_young_newest,omitempty"`
	// Excluded is the number of unpaid orders that orders.where or orders.not_before excludes: no close changes them.
	Excluded int `json:"excluded"`
	// LatePayments counts the orders with a late payment, and LateUnresolved those of them with one that nobody has resolved.
	LatePayments   int `json:"late_payments"`
	LateUnresolved int `json:"late_payments_unresolved"`
	// NotRechecked counts closed orders about which the payment provider should have been asked again, and
	// was not at each step of closer.payment.recheck.
	NotRechecked int `json:"not_rechecked"`

	Findings     map[FindingKind]int `json:"findings"`
	FindingCount int                 `json:"found"`
	// NotRead says what could not be read, and why.
	NotRead    []string `json:"unseen"`
	TookMillis int64    `json:"took_ms"`
}

// ByOthers counts the closed orders without a receipt, which another program has closed, by the time of their close.
type ByOthers struct {
	Orders int `json:"orders"`
	Early  int `json:"early"` // by more than AuditOptions.Tolerance
	OnTime int `json:"on_time"`
	Late   int `json:"late"`
	// Untimed counts those whose time of the close is not known: the mapping has no closed_at, or it is empty.
	Untimed int `json:"untimed"`
	// Latest is how late the latest was, in seconds.
	Latest float64 `json:"latest_s"`
	// EarlyNewest and LateNewest have up to five of the orders that were early or late, the latest due time first.
	EarlyNewest []OrderDue `json:"early_newest,omitempty"`
	LateNewest  []OrderDue `json:"late_newest,omitempty"`
}

// OrderDue is an order and its due time.
type OrderDue struct {
	Order string    `json:"order"`
	Due   time.Time `json:"due"`
}

// audit is one run.
type audit struct {
	o      AuditOptions
	common facts // of all orders
	sum    AuditSummary
	parts  []store.AuditPart
}

const (
	// pageSize is how many orders one page has.
	pageSize = 500
	// recheckSlack is how late a question about a closed order may be: a look each minute, and the take-over of a killed process.
	recheckSlack = 3 * time.Minute
)

// Audit compares what the database holds about each order that was due in a window of time: its row, its receipt and its stock that moved. It reads
// pages of orders by due time and id, each page with all its rows as of one moment, and passes each Finding to OnFinding at once. It returns an
// error of the database, of the context, or of OnFinding.
//
// Before Migrate, and for a user who may read the orders only, it says which orders are open for too long, and when others closed the rest.
//
// It does not see an order whose row was deleted or whose status is NULL. An order whose status the mapping does not name is checked as the close
// transaction treats it, and AuditSummary.Unlisted names the status. A close writes its event in its transaction, into the outbox.
func Audit(ctx context.Context, o AuditOptions) (AuditSummary, error) {
	began := time.Now()
	a := &audit{o: o, sum: AuditSummary{
		From: o.From.UTC(), To: o.To.UTC(), Bound: o.Bound.String(),
		Statuses: map[string]int{}, Unlisted: map[string]store.AuditState{}, ClosedBy: map[orderclose.Path]int{},
		Findings: map[FindingKind]int{}, NotRead: []string{},
	}}
	err := a.run(ctx)
	a.sum.TookMillis = time.Since(began).Milliseconds()
	return a.sum, err
}

func (a *audit) run(ctx context.Context) (err error) {
	if a.sum.At, err = a.o.Store.Now(ctx); err == nil {
		a.parts, err = a.o.Store.AuditParts(ctx)
	}
	if err != nil {
		return err
	}
	closer := a.o.Config.Closer
	a.common = facts{
		rules: a.o.Store.AuditRules(), receipts: closer.Kind != config.KindHTTP, pays: closer.AsksPayment(), now: a.sum.At, bound: a.o.Bound,
		tolerance: a.o.Tolerance, delays: a.o.Config.Delays,
	}
	if err := a.o.Store.CanAudit(ctx); err != nil && ctx.Err() == nil {
		a.sum.NotRead = append(a.sum.NotRead, fmt.Sprintf("receipts and stock: %v", err))
		a.common.receipts, a.common.pays = false, false
		for i := range a.parts {
			a.parts[i].RowsOnly = true
		}
	}
	if a.common.notRechecked, err = a.readRechecks(ctx); err != nil {
		return err
	}
	for _, part := range a.parts {
		if part.Unlisted {
			a.sum.Unlisted[part.Status] = part.State
		}
		if err := a.walk(ctx, part); err != nil {
			return err
		}
	}
	if a.common.receipts {
		return a.closed(ctx)
	}
	return nil
}

// progress says how far the audit is.
func (a *audit) progress(text string) {
	if a.o.Progress != nil {
		a.o.Progress(text)
	}
}

// walk compares the orders of a part, in pages.
func (a *audit) walk(ctx context.Context, part store.AuditPart) error {
	for last := (orderclose.Order{}); ; {
		page, err := a.o.Store.AuditPage(ctx, part, a.o.From, a.o.To, last, pageSize)
		if err != nil {
			return err
		}
		for _, row := range page {
			if row.Due.Before(a.o.From) || !row.Due.Before(a.o.To) {
				continue // the page includes to, and rounds from down to the column's precision
			}
			if err := a.order(row); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		last = page[len(page)-1].Order
		a.progress(fmt.Sprintf("%d orders, %d findings", a.sum.Orders, a.sum.FindingCount))
	}
}

// closed judges the orders that were closed in the window and are due at another time now: the shop has moved or cleared the due
// time, or the due time is computed from the status.
func (a *audit) closed(ctx context.Context) error {
	for after := (store.ReceiptKey{}); ; {
		rows, last, err := a.o.Store.AuditClosed(ctx, a.o.From, a.o.To, after, pageSize)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !r.Due.Before(a.o.From) && r.Due.Before(a.o.To) {
				continue
			}
			a.sum.ClosedElsewhere++ //mutant:moved-due-unjudged
			if err := a.judge(r, a.common); err != nil {
				return err
			}
		}
		if after = last; after == (store.ReceiptKey{}) {
			return nil
		}
		a.progress(fmt.Sprintf("%d orders that are due at another time now", a.sum.ClosedElsewhere))
	}
}

// readRechecks returns, by step, when the orders were closed that should have been asked about again, and were not.
func (a *audit) readRechecks(ctx context.Context) (spans []span, err error) {
	if !a.common.pays {
		return nil, nil
	}
	for _, step := range a.o.Config.Closer.Payment.Recheck {
		until, now, err := a.o.Store.Rechecked(ctx, a.o.Config.Topics.Close, step)
		if err != nil {
			return nil, err
		}
		spans = append(spans, span{until, now.Add(-step - recheckSlack)})
	}
	return spans, nil
}

// order compares one order.
func (a *audit) order(r store.AuditRow) error {
	a.sum.count(r, a.common)
	return a.judge(r, a.common)
}

// judge passes the findings of an order on.
func (a *audit) judge(r store.AuditRow, f facts) error {
	for _, finding := range judge(r, f) {
		a.sum.FindingCount++
		a.sum.Findings[finding.Kind]++
		if err := a.o.OnFinding(finding); err != nil {
			return err
		}
	}
	return nil
}
