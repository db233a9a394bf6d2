package outbox

import (
	"maps"
	"sync"
	"time"

	"orderclose"
)

const (
	// asideTime is how long a row is left alone that could neither be published nor
	// made a dead letter of.
	asideTime = 30 * time.Second
	// maxAside bounds how many such rows are remembered. More are tried whenever they
	// are looked past.
	maxAside = 10_000
)

// aside are rows that are left alone for a while. Safe for concurrent use.
type aside struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func newAside() *aside { return &aside{until: map[int64]time.Time{}} }

func (a *aside) put(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) < maxAside {
		a.until[id] = time.Now().Add(asideTime)
	}
}

// leave returns rows without those that are aside.
func (a *aside) leave(rows []orderclose.OutboxRow) []orderclose.OutboxRow {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) == 0 {
		return rows
	}
	now := time.Now()
	maps.DeleteFunc(a.until, func(_ int64, until time.Time) bool { return !now.Before(until) })
	var left []orderclose.OutboxRow
	for _, r := range rows {
		if _, is := a.until[r.ID]; !is {
			left = append(left, r)
		}
	}
	return left
}
