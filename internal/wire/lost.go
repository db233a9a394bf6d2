package wire

import (
	"encoding/json"
	"fmt"
)

// Lost is a notice in the control topic: records of a delay topic or of the close
// topic are gone, or it is unknown how far they were processed. A compensator reads
// the notice, sweeps the database, and schedules orders again.
type Lost struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	First     int64  `json:"first"` // first and last offset of the lost range; see Range
	Last      int64  `json:"last"`
	Reason    string `json:"reason"`
	// Waited is how many records are known to be gone that were not settled: of a topic that was recreated,
	// most of the range had been settled before. nil: the whole range, as older versions count.
	Waited *int64 `json:"waited,omitempty"`
}

// KeyLost is the key of a Lost in the control topic.
const KeyLost = "lost"

// Encode returns the notice as a record of the control topic.
func (l Lost) Encode() Message {
	value, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("two numbers and two strings: %v", err)) // cannot happen
	}
	return Message{Key: []byte(KeyLost), Value: value}
}
