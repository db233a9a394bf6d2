// Package pausing says what a pause of closing is: a row of the table pauses, which closer, compensator and operators read.
package pausing

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/text"
)

// MaxPause is the longest pause. A person who forgets a pause loses a day at most.
const MaxPause = 24 * time.Hour

// Pause says that no order, or none of one category, is closed for a while. It is a row of the table pauses.
type Pause struct {
	// Category limits the pause to orders of one category; empty: all orders.
	Category  string    `json:"category,omitempty"`
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
}

// String says in one line what is paused, until when, and why.
func (p Pause) String() string {
	what := "all orders"
	if p.Category != "" {
		what = "orders of " + text.OneLine(p.Category, 60)
	}
	return fmt.Sprintf("%s until %s: %s", what, text.Stamp(p.Until), text.OneLine(p.Reason, 500))
}

// Resume returns the command that ends the pause.
func (p Pause) Resume() string {
	if p.Category == "" {
		return "orderclose resume"
	}
	return "orderclose resume --category " + text.ShellQuote(p.Category)
}

// ErrEndsLater says that a pause would end another one earlier.
var ErrEndsLater = errors.New("a pause that is on ends later; replace it (--replace, or Replace in the console and in Go) to end it earlier on purpose")

// Shortened returns those of the pauses that a pause of a category would end earlier. Unless replace is set,
// the error names them and wraps ErrEndsLater. A pause of all orders and one of a category do not end each other.
func Shortened(on []Pause, category string, until time.Time, replace bool) (later []Pause, err error) {
	names := ""
	for _, p := range on {
		if p.Category == category && p.Until.After(until) { //mutant:shorter-pause-replaces
			later = append(later, p)
			names += fmt.Sprintf("; %s until %s: %q", cmp.Or(category, "all orders"), p.Until.UTC().Format(time.RFC3339), p.Reason)
		}
	}
	if len(later) > 0 && !replace {
		err = fmt.Errorf("%w: %s", ErrEndsLater, names[2:])
	}
	return later, err
}

// ErrPausedCategory is the Err of an Outcome whose order is of a category that a row of pauses stops. The verdict Paused of a service, or of
// another Store, has no such Err.
var ErrPausedCategory = fmt.Errorf("%w for the category of the order", orderclose.ErrPaused)

// Covers reports whether the pause is of the orders of a category.
func (p Pause) Covers(category string) bool { return p.Category == "" || p.Category == category }

// Err returns the error of closes during the pause. It wraps orderclose.ErrPaused.
func (p Pause) Err() error {
	return fmt.Errorf("%w until %s: %s", orderclose.ErrPaused, p.Until.UTC().Format(time.RFC3339), p.Reason)
}
