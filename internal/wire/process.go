package wire

import "encoding/json"

// Process is a process that runs parts of the pipeline. A relay, closer or compensator appends one to the
// control topic when it starts, each hour, and when it stops.
type Process struct {
	Name    string `json:"process"` // role@host:pid:port, its client id in consumer groups
	Version string `json:"version,omitempty"`
	Ended   bool   `json:"ended,omitempty"` // it has stopped because somebody asked it to, and not because a part of it failed
}

// KeyProcess is the key of a Process in the control topic.
const KeyProcess = "process"

// Encode returns the process as a record of the control topic.
func (p Process) Encode() (Message, error) {
	value, err := json.Marshal(p)
	return Message{Key: []byte(KeyProcess), Value: value}, err
}
