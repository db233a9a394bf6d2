package wire

import (
	"encoding/json"

	"github.com/orderclose/orderclose"
)

// keyLost is the key of a notice in the control topic: older relays and closers report there that a log has lost records.
const keyLost = "lost"

// Recognized reports whether the record has a form that this package describes: an order, a dead
// letter or its resolution, an event, a record of the control topic, or a verdict of a shadow run.
// It tells the topics of this program from those of others.
func (m *Message) Recognized() bool {
	if _, err := m.Due(); err == nil {
		return true
	}
	if _, dead := m.Header(HeaderSourceOffset); dead {
		return true
	}
	if _, resolution := DecodeResolution(m); resolution {
		return true
	}
	switch string(m.Key) {
	case keyLost, KeySweep, KeyProcess:
		return true
	}
	var value struct {
		Source  string          `json:"source"` // of an event
		Probe   json.RawMessage `json:"probe"`  // of the brokers' clock
		Verdict string          `json:"verdict"`
	}
	err := json.Unmarshal(m.Value, &value)
	return err == nil && (value.Source == orderclose.EventSource || value.Probe != nil || value.Verdict != "")
}
