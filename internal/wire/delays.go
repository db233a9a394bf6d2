package wire

import (
	"cmp"
	"encoding/json"
	"maps"
	"time"

	"github.com/orderclose/orderclose"
)

// Delays are the delays of topics.yaml in milliseconds. A compensator appends them to the control topic
// when they differ from the newest that are there. A change is a record that differs from the one before.
type Delays struct {
	Default    int64            `json:"default_ms"`
	Categories map[string]int64 `json:"categories_ms,omitempty"`
	File       string           `json:"file,omitempty"` // the first digits of the file's SHA-256; "": no file
	Process    string           `json:"process"`        // which process read it: role@host:pid:port
	At         time.Time        `json:"-"`              // when it was appended, by the brokers' clock: the reader sets it
}

// KeyDelays is the key of Delays in the control topic.
const KeyDelays = "delays"

// NewDelays returns the delays as a record of a process has them, without the file.
func NewDelays(d orderclose.Delays, process string) Delays {
	r := Delays{Default: d.Default.Milliseconds(), Categories: map[string]int64{}, Process: process}
	for category, delay := range d.ByCategory {
		r.Categories[category] = delay.Milliseconds()
	}
	return r
}

// Of returns the delay of a category; "" stands for all that are not listed.
func (d Delays) Of(category string) time.Duration {
	return time.Duration(cmp.Or(d.Categories[category], d.Default)) * time.Millisecond
}

// Same reports whether every category has the same delay.
func (d Delays) Same(o Delays) bool {
	return d.Default == o.Default && maps.Equal(d.Categories, o.Categories)
}

// Encode returns the delays as a record of the control topic.
func (d Delays) Encode() (Message, error) {
	value, err := json.Marshal(d)
	return Message{Key: []byte(KeyDelays), Value: value}, err
}
