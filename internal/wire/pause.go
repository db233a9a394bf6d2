package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

// MaxPause is the longest pause. A person who forgets a pause loses a day at most. The control topic
// keeps its records for longer.
const MaxPause = 24 * time.Hour

// Pause says that no order is closed by one path for a while. It is a row of the table pauses or, if
// the orders are not closed in the database, a record of the control topic. The last record of a path
// counts, unless its operator has not seen the pause that is on: the record would end it earlier, without Replace, or ends a
// pause with another reason.
type Pause struct {
	Path orderclose.Path `json:"path"`
	// Category limits the pause to orders of one category; empty: all orders. Only the database knows
	// an order's category.
	Category  string    `json:"category,omitempty"`
	Until     time.Time `json:"until"` // at or before CreatedAt: the pause was ended
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
	Replace   bool      `json:"replace,omitempty"` // only in records: the pause may end the one that is on earlier
}

// PathName returns the name of a path in commands and metrics: pipeline, sweep or on-read.
func PathName(p orderclose.Path) string {
	if p == orderclose.PathTouch {
		return "on-read"
	}
	return string(p)
}

// ErrEndsLater says that a pause would end another one earlier.
var ErrEndsLater = errors.New("a pause that is on ends later; replace it (--replace, or Replace in the console and in Go) to end it earlier on purpose")

// Shortened returns those of the pauses that a pause of some paths and a category would end earlier. Unless replace is set,
// the error names them and wraps ErrEndsLater. A pause of all orders and one of a category do not end each other.
func Shortened(on []Pause, paths []orderclose.Path, category string, until time.Time, replace bool) (later []Pause, err error) {
	names := ""
	for _, p := range on {
		if slices.Contains(paths, p.Path) && p.Category == category && p.Until.After(until) { //mutant:shorter-pause-replaces
			later = append(later, p)
			names += fmt.Sprintf("; closes by %s of %s until %s: %q", PathName(p.Path), cmp.Or(category, "all orders"), p.Until.UTC().Format(time.RFC3339), p.Reason)
		}
	}
	if len(later) > 0 && !replace {
		err = fmt.Errorf("%w: %s", ErrEndsLater, names[2:])
	}
	return later, err
}

// Err returns the error of closes during the pause. It wraps orderclose.ErrPaused.
func (p Pause) Err() error {
	return fmt.Errorf("%w until %s: %s", orderclose.ErrPaused, p.Until.UTC().Format(time.RFC3339), p.Reason)
}

// KeyPause is the key of a Pause in the control topic.
const KeyPause = "pause"

// Encode returns the pause as a record of the control topic.
func (p Pause) Encode() (Message, error) {
	value, err := json.Marshal(p)
	return Message{Key: []byte(KeyPause), Value: value}, err
}

// DecodePause decodes a record that Encode wrote.
func DecodePause(value []byte) (p Pause, err error) {
	if err := json.Unmarshal(value, &p); err != nil {
		return p, fmt.Errorf("decode a pause: %w", err)
	}
	if p.Path == "" {
		return p, errors.New("decode a pause: it has no path")
	}
	return p, nil
}
