package wire

import (
	"cmp"
	"encoding/json"
	"time"
)

// Process is a process that runs parts of the pipeline. It appends one to the control topic when it starts,
// each hour or each EverySeconds, when its Delays or Failing have changed, and when it stops.
type Process struct {
	Name    string `json:"process"` // role@host:pid:port or role@instance:port, its client id in consumer groups
	Version string `json:"version,omitempty"`
	// Instance is that of its memberships, if it has one, and At its host:pid.
	Instance string `json:"instance,omitempty"`
	At       string `json:"at,omitempty"`
	// Database is the host, port and name of the database; "": it has none.
	Database string `json:"database,omitempty"`
	Ended    bool   `json:"ended,omitempty"` // it has stopped because somebody asked it to, and not because a part of it failed
	// EverySeconds is the time between two records, if the process is known by its records alone; 0: an
	// hour, because it is a member of a group.
	EverySeconds int `json:"every_s,omitempty"`
	// Delays are those of a compensator, in milliseconds by category; "" stands for all that are not listed, and a
	// name that begins with "rule " for the orders that a rule matches.
	Delays map[string]int64 `json:"delays_ms,omitempty"`
	// Failing is since when a closer or compensator cannot write to the database, a compensator cannot take the lock of
	// its sweep, or a closer closes only as few orders at once as its limit allows at least, in Unix milliseconds.
	Failing map[string]int64 `json:"failing_since_ms,omitempty"`
	File    string           `json:"file,omitempty"` // the first digits of the SHA-256 of the file that has Delays; "": none
}

// What a record of the control topic may have: its readers skip others.
const (
	MaxControl = 64 << 10 // bytes of a batch, and so of a record: max.message.bytes of the topic
	MaxEntries = 1000     // of Delays, and of Failing
)

// KeyProcess is the key of a Process in the control topic.
const KeyProcess = "process"

// The keys of Process.Failing.
const (
	FailingWrites = "writes"
	FailingLock   = "lock"
	FailingLimit  = "limit"
)

// Delay returns the delay of a category; "" stands for all that are not listed.
func (p Process) Delay(category string) time.Duration {
	return time.Duration(cmp.Or(p.Delays[category], p.Delays[""])) * time.Millisecond
}

// Encode returns the process as a record of the control topic.
func (p Process) Encode() (Message, error) {
	value, err := json.Marshal(p)
	return Message{Key: []byte(KeyProcess), Value: value}, err
}
