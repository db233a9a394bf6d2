package shadow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// Verdict says what a close would have done with an order at some time. A shadow run appends
// one to the shadow topic for each record of the close topic.
type Verdict struct {
	OrderID string             `json:"order_id"`
	Verdict orderclose.Verdict `json:"verdict"`
	// Due is the due time in the database; zero if the order has none, or was not found.
	Due time.Time `json:"due_at,omitzero"`
	// At is the database's clock at the verdict. If the database could not read the order (the
	// verdict is Failed), it is the clock of the machine.
	At time.Time `json:"at"`
	// Path is the path of the close: always orderclose.PathPipeline.
	Path orderclose.Path `json:"path"`
}

// Encode returns the verdict as a record of the shadow topic. Its key is the order's id.
func (v Verdict) Encode() wire.Message {
	if y := v.Due.Year(); y < 0 || y > 9999 {
		v.Due = time.Time{} // a year that JSON cannot express
	}
	value, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("texts and times: %v", err)) // cannot happen
	}
	return wire.Message{Key: []byte(v.OrderID), Value: value}
}

// DecodeVerdict decodes the value of a record that Encode wrote.
func DecodeVerdict(value []byte) (v Verdict, err error) {
	if err := json.Unmarshal(value, &v); err != nil {
		return v, fmt.Errorf("decode a verdict of a shadow run: %w", err)
	}
	if v.OrderID == "" || v.Verdict == "" || v.At.IsZero() {
		return v, errors.New("decode a verdict of a shadow run: order_id, verdict or at is missing")
	}
	return v, nil
}
