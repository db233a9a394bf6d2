package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

// MaxPause is the longest pause. A person who forgets a pause loses a day at most. The control topic
// keeps its records for longer.
const MaxPause = 24 * time.Hour

// Pause says that no order is closed by one path for a while. It is a row of the table pauses or, if
// the orders are not closed in the database, a record of the control topic. The last record of a path
// counts.
type Pause struct {
	Path orderclose.Path `json:"path"`
	// Category limits the pause to orders of one category; empty: all orders. Only the database knows
	// an order's category.
	Category  string    `json:"category,omitempty"`
	Until     time.Time `json:"until"` // at or before CreatedAt: the pause was ended
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
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
