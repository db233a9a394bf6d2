package ops

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	// postponeRead is how many orders one query of a plan reads.
	postponeRead = 500
	// postponeWrite is how many orders one transaction postpones. It locks their rows for some tens
	// of milliseconds; a payment of one of them waits as long.
	postponeWrite = 200
)

// PostponeDatabase is what postponing needs of the database. Store of internal/store implements it.
type PostponeDatabase interface {
	Now(ctx context.Context) (time.Time, error)
	Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
	// Categories returns store.ErrNoCategory if orders have no category.
	Categories(ctx context.Context, reqs []orderclose.CloseRequest) (map[string]string, error)
	// CheckCreated returns store.ErrNoCreated if it is not known when orders were created.
	CheckCreated() error
	InReach(o orderclose.Order, due time.Time) error
	Postpone(ctx context.Context, orders []orderclose.Order, by time.Duration) ([]store.PostponeResult, error)
}

var (
	// ErrBeyondMaxDelay says that an order would be due further ahead than any order may be.
	ErrBeyondMaxDelay = errors.New("beyond delays.max")
	// ErrClosedElsewhere says that the orders are not closed in the database, so that it does not decide.
	ErrClosedElsewhere = errors.New("a service (closer.http.url), or a Store of the program, closes the orders: ask it")
)

// PostponeWhere returns a plan with the database and the table of the orders, or an error if their due times cannot be changed
// there: it wraps ErrClosedElsewhere, ErrNoDatabase, store.ErrDueGenerated or orderclose.ErrUnavailable, or is a *store.MappingError.
func (p Pipeline) PostponeWhere(ctx context.Context) (where PostponePlan, err error) {
	db, err := p.ClosingDatabase()
	if err != nil {
		return where, err
	}
	for _, check := range []func(context.Context) error{db.Ping, db.CheckMapping, db.CheckPostpone} {
		if err := check(ctx); err != nil {
			return where, err
		}
	}
	return PostponePlan{Database: db.Database(), Table: db.OrdersTable()}, nil
}

// PostponePlan says which orders are postponed, and by how much. It is the first line of the plan's
// file; the orders follow, see WritePostponePlan.
type PostponePlan struct {
	Format   int    `json:"orderclose_postpone"` // postponeFormat
	Database string `json:"database"`            // host:port/database
	Table    string `json:"table"`               // of orders
	// Categories, if not empty, select the orders of these categories.
	Categories []string  `json:"categories,omitempty"`
	DueBefore  time.Time `json:"due_before"`
	// CreatedFrom and CreatedBefore, if not zero, select the orders that were created from the one
	// time on, and before the other.
	CreatedFrom   time.Time `json:"created_from,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
	By            string    `json:"by"`         // whole seconds, as ParseDuration of internal/config reads them
	CreatedAt     time.Time `json:"created_at"` // of the plan
}

// byCreation reports whether the plan selects orders by their creation.
func (p PostponePlan) byCreation() bool { return !p.CreatedFrom.IsZero() || !p.CreatedBefore.IsZero() }

// hasCreation reports whether the plan selects orders that were created at a time. If it selects by
// creation, it does not select the zero time, which is not known.
func (p PostponePlan) hasCreation(at time.Time) bool {
	return !p.byCreation() || !at.IsZero() && !at.Before(p.CreatedFrom) && (p.CreatedBefore.IsZero() || at.Before(p.CreatedBefore))
}

// by returns By as a duration.
func (p PostponePlan) by() (time.Duration, error) {
	by, err := config.ParseDuration(p.By)
	if err == nil && by%time.Second != 0 {
		err = fmt.Errorf("%q is not a whole number of seconds", p.By)
	}
	return by, err
}

// PostponeSummary is what a plan would change.
type PostponeSummary struct {
	PostponePlan
	Orders          int64 `json:"orders"`
	Overdue         int64 `json:"overdue"` // of Orders; closers may close them before they are postponed
	OtherCategories int64 `json:"other_categories"`
	// OtherCreation counts the orders of the categories that were created at other times, or at a
	// time that is not known.
	OtherCreation int64 `json:"other_creation"`
	// FirstDue and LastDue are the due times of Orders before the change; zero: there are none.
	FirstDue time.Time `json:"first_due,omitzero"`
	LastDue  time.Time `json:"last_due,omitzero"`
}

// PlanPostpone finds the open orders of the plan, in pages, writes the plan with each order and its
// due time to w, and changes nothing. It sets CreatedAt of the plan, by the database's clock. No
// order may be due further ahead than max after the change: such an order is an error that wraps
// ErrBeyondMaxDelay. The error wraps store.ErrNoCategory if categories are selected and orders have
// none, store.ErrNoCreated likewise, and store.ErrOutOfReach if an order would leave the tables that
// are read.
func PlanPostpone(ctx context.Context, db PostponeDatabase, p PostponePlan, max time.Duration, w io.Writer) (PostponeSummary, error) {
	r := PostponeSummary{PostponePlan: p}
	by, err := p.by()
	if err != nil {
		return r, fmt.Errorf("by: %w", err)
	}
	if len(p.Categories) > 0 {
		if _, err := db.Categories(ctx, nil); err != nil {
			return r, err
		}
	}
	if p.byCreation() {
		if err := db.CheckCreated(); err != nil {
			return r, err
		}
	}
	now, err := db.Now(ctx)
	if err != nil {
		return r, err
	}
	r.Format, r.CreatedAt = postponeFormat, now
	file := bufio.NewWriter(w)
	lines := json.NewEncoder(file)
	if err := lines.Encode(r.PostponePlan); err != nil {
		return r, err
	}
	var after orderclose.Order
	for {
		page, err := db.Overdue(ctx, p.DueBefore, after, postponeRead)
		if err != nil {
			return r, err
		}
		if len(page) == 0 {
			return r, errors.Join(lines.Encode(postponeLine{Orders: &r.Orders}), file.Flush())
		}
		after = page[len(page)-1]
		for _, o := range page {
			if !o.Due.Before(p.DueBefore) {
				continue
			}
			if len(p.Categories) > 0 && !slices.Contains(p.Categories, o.Category) {
				r.OtherCategories++
				continue
			}
			if !p.hasCreation(o.CreatedAt) {
				r.OtherCreation++
				continue
			}
			if err := checkPostponed(db, o, by, now, max); err != nil {
				return r, err
			}
			r.add(o, now)
			if err := lines.Encode(postponeLine{ID: o.ID, Due: o.Due.UTC(), CreatedAt: o.CreatedAt.UTC()}); err != nil {
				return r, err
			}
		}
	}
}

// checkPostponed reports why an order may not be postponed.
func checkPostponed(db PostponeDatabase, o orderclose.Order, by time.Duration, now time.Time, max time.Duration) error {
	due := o.Due.Add(by)
	if ahead := due.Sub(now); ahead > max {
		return fmt.Errorf("order %q would be due at %s, %s ahead, %w, %s", o.ID, due.UTC().Format(time.RFC3339), orderclose.ShortDuration(ahead.Round(time.Second)),
			ErrBeyondMaxDelay, config.FormatDuration(max))
	}
	return db.InReach(o, due)
}

// add counts an order.
func (r *PostponeSummary) add(o orderclose.Order, now time.Time) {
	r.Orders++
	r.LastDue = o.Due.UTC()
	r.FirstDue = cmp.Or(r.FirstDue, r.LastDue)
	if !o.Due.After(now) {
		r.Overdue++
	}
}

// PostponeOutcome counts the orders of a plan by what became of them.
type PostponeOutcome struct {
	PostponePlan
	Orders    int64 `json:"orders"`           // of the plan
	Postponed int64 `json:"postponed"`        // by this run
	Before    int64 `json:"postponed_before"` // by an earlier run
	NotOpen   int64 `json:"not_open"`         // paid or closed since the plan was made
	Moved     int64 `json:"moved"`            // have another due time since the plan was made
	NotFound  int64 `json:"not_found"`
}

// handled returns how many orders were handled.
func (r *PostponeOutcome) handled() int64 {
	return r.Postponed + r.Before + r.NotOpen + r.Moved + r.NotFound
}

// ApplyPostpone carries out a plan: it postpones the orders that are still open and have their due
// time of the plan, in pages of one transaction each. It reads the whole plan before it changes
// anything, and returns an error if the plan is incomplete, or was made for another database or
// table than same names. Run again, after an interruption too, it changes only what is left. max is
// that of PlanPostpone. progress, if not nil, is called with the number of orders handled so far. On
// an error the result still counts the orders that were handled.
func ApplyPostpone(ctx context.Context, db PostponeDatabase, plan io.ReadSeeker, same PostponePlan, max time.Duration,
	progress func(done, total int64)) (PostponeOutcome, error) {
	var r PostponeOutcome
	now, err := db.Now(ctx)
	if err != nil {
		return r, err
	}
	var by time.Duration
	r.PostponePlan, r.Orders, err = readPostponePlan(plan, func(p PostponePlan) (err error) {
		if p.Database != same.Database || p.Table != same.Table {
			return fmt.Errorf("%w: it is for table %s of %s, and this is table %s of %s; if they are the same, change the first line",
				ErrOtherDatabase, p.Table, p.Database, same.Table, same.Database)
		}
		by, err = p.by()
		return err
	}, func(o orderclose.Order) error { return checkPostponed(db, o, by, now, max) })
	if err != nil {
		return r, err
	}
	if _, err := plan.Seek(0, io.SeekStart); err != nil {
		return r, err
	}
	var page []orderclose.Order
	flush := func() error {
		results, err := db.Postpone(ctx, page, by)
		if err != nil {
			return err
		}
		for _, result := range results {
			r.count(result)
		}
		page = page[:0]
		if progress != nil {
			progress(r.handled(), r.Orders)
		}
		return nil
	}
	_, _, err = readPostponePlan(plan, func(PostponePlan) error { return nil }, func(o orderclose.Order) error {
		if page = append(page, o); len(page) < postponeWrite {
			return nil
		}
		return flush()
	})
	if err == nil && len(page) > 0 {
		err = flush()
	}
	return r, err
}

func (r *PostponeOutcome) count(result store.PostponeResult) {
	switch result {
	case store.Postponed:
		r.Postponed++
	case store.PostponedBefore:
		r.Before++
	case store.PostponeNotOpen:
		r.NotOpen++
	case store.PostponeMoved:
		r.Moved++
	case store.PostponeGone:
		r.NotFound++
	}
}
