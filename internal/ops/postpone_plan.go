package ops

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orderclose/orderclose"
)

// postponeFormat is the version of the plan's file: JSON lines, first the plan, then a line for each
// order, then the number of orders, without which the file is incomplete.
const postponeFormat = 1

// Errors of a plan's file.
var (
	ErrNoPlan         = errors.New("the file is not a plan of orderclose postpone")
	ErrIncompletePlan = errors.New("the plan is incomplete: its last line must have the number of its orders; make a new plan")
	ErrOtherDatabase  = errors.New("the plan is for another database")
)

// postponeLine is a line of the file after the first.
type postponeLine struct {
	ID        string    `json:"id,omitempty"`
	Due       time.Time `json:"due,omitzero"`        // before the change
	CreatedAt time.Time `json:"created_at,omitzero"` // zero: not known
	// Orders is the number of orders, in the last line only.
	Orders *int64 `json:"orders,omitempty"`
}

// readPostponePlan reads a plan. It calls begin with the plan and each with every order, and stops at
// their first error. It returns the number of orders. An error of the file names the line, and wraps
// ErrNoPlan or ErrIncompletePlan.
func readPostponePlan(r io.Reader, begin func(PostponePlan) error, each func(orderclose.Order) error) (p PostponePlan, orders int64, err error) {
	lines := bufio.NewScanner(r)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &p) != nil || p.Format != postponeFormat {
		return p, 0, errors.Join(ErrNoPlan, lines.Err())
	}
	if err := begin(p); err != nil {
		return p, 0, err
	}
	for n := 2; lines.Scan(); n++ {
		var l postponeLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return p, orders, fmt.Errorf("%w: line %d: %w", ErrNoPlan, n, err)
		}
		if l.Orders != nil {
			if *l.Orders != orders || lines.Scan() {
				return p, orders, fmt.Errorf("%w: line %d says %d after %d orders", ErrIncompletePlan, n, *l.Orders, orders)
			}
			return p, orders, lines.Err()
		}
		if l.ID == "" || l.Due.IsZero() {
			return p, orders, fmt.Errorf("%w: line %d has no id or no due time", ErrNoPlan, n)
		}
		if err := each(orderclose.Order{ID: l.ID, Due: l.Due, CreatedAt: l.CreatedAt}); err != nil {
			return p, orders, err
		}
		orders++
	}
	return p, orders, errors.Join(ErrIncompletePlan, lines.Err())
}
