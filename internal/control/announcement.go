package control

import (
	"encoding/json"

	"github.com/orderclose/orderclose/internal/wire"
)

// Announcement is the record of a process that runs parts of the pipeline. The process appends one to the control topic when it starts,
// each hour or each EverySeconds, when its FailingSince has changed, and when it stops.
type Announcement struct {
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
	// FailingSince is since when a closer or compensator cannot write to the database, a compensator cannot take the lock of
	// its sweep, or a closer closes only as few orders at once as its limit allows at least, in Unix milliseconds.
	FailingSince map[string]int64 `json:"failing_since_ms,omitempty"`
}

// What a record of the control topic may have: its readers skip others.
const (
	MaxRecord  = 64 << 10 // bytes of a batch, and so of a record: max.message.bytes of the topic
	MaxEntries = 1000     // of FailingSince
)

// KeyProcess is the key of an Announcement in the control topic.
const KeyProcess = "process"

// The keys of Announcement.FailingSince.
const (
	FailingWrites  = "writes"
	FailingLock    = "lock"
	FailingLimit   = "limit"
	FailingPayment = "payment"
)

// Encode returns the announcement as a record of the control topic.
func (p Announcement) Encode() (wire.Message, error) {
	value, err := json.Marshal(p)
	return wire.Message{Key: []byte(KeyProcess), Value: value}, err
}
