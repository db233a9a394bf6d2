package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Process is a process that runs parts of the pipeline. A relay, closer or compensator appends one to the
// control topic when it starts, each hour, and when it stops.
type Process struct {
	Name    string `json:"process"` // role@host:pid:port, its client id in consumer groups
	Version string `json:"version,omitempty"`
	Ended   bool   `json:"ended,omitempty"` // it has stopped as somebody asked it to
}

// KeyProcess is the key of a Process in the control topic.
const KeyProcess = "process"

// Encode returns the process as a record of the control topic.
func (p Process) Encode() (Message, error) {
	value, err := json.Marshal(p)
	if err != nil {
		return Message{}, fmt.Errorf("encode a process: %w", err)
	}
	return Message{Key: []byte(KeyProcess), Value: value}, nil
}

// DecodeProcess decodes a record that Encode wrote.
func DecodeProcess(value []byte) (p Process, err error) {
	if err := json.Unmarshal(value, &p); err != nil {
		return p, fmt.Errorf("decode a process: %w", err)
	}
	if p.Name == "" {
		return p, errors.New("decode a process: it has no name")
	}
	return p, nil
}
