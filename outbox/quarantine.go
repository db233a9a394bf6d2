package outbox

import (
	"maps"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// quarantineTime is how long a row is skipped that could be written neither to its
	// topic nor to the dead-letter topic.
	quarantineTime = 30 * time.Second
	// maxQuarantined limits how many such rows are remembered. Further rows are tried
	// each time they are read.
	maxQuarantined = 10_000
)

// quarantine holds the ids of rows that are skipped for a while. It is safe for
// concurrent use.
type quarantine struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func (a *quarantine) add(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) < maxQuarantined {
		a.until[id] = time.Now().Add(quarantineTime)
	}
}

// filter returns rows without the quarantined ones.
func (a *quarantine) filter(rows []wire.OutboxRow) []wire.OutboxRow {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) == 0 {
		return rows
	}
	now := time.Now()
	maps.DeleteFunc(a.until, func(_ int64, until time.Time) bool { return !now.Before(until) })
	var left []wire.OutboxRow
	for _, r := range rows {
		if _, is := a.until[r.ID]; !is {
			left = append(left, r)
		}
	}
	return left
}
