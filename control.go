package orderclose

import (
	"encoding/json"
	"fmt"
)

// Lost says that records of a delay topic or the close topic are gone, or that
// nobody knows how far they were done: whoever watches the control topic has the
// database swept.
type Lost struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	First     int64  `json:"first"` // the offsets that were to be read, both ends included
	Last      int64  `json:"last"`
	Reason    string `json:"reason"`
}

// KeyLost is the key of a Lost in the control topic.
const KeyLost = "lost"

// Encode returns the record of the control topic.
func (l Lost) Encode() Message {
	value, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("two numbers and two strings: %v", err)) // cannot be
	}
	return Message{Key: []byte(KeyLost), Value: value}
}
