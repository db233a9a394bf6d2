package partition

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

// SetDefaults sets those of the usual options of a part that are not set: OnHang panics with the name of
// the part, Logger writes warnings and errors to slog.Default, and clocks are time.Now.
func SetDefaults(part string, onHang *func(why string), logger **slog.Logger, clocks ...*func() time.Time) {
	if *onHang == nil {
		*onHang = func(why string) { panic(part + ": " + why) }
	}
	*logger = retry.LimitLogs(*logger)
	for _, clock := range clocks {
		if *clock == nil {
			*clock = time.Now
		}
	}
}

// MemoryLimit divides an amount of memory, in bytes, equally between the loops of a process. It
// is safe for concurrent use.
type MemoryLimit struct {
	bytes int
	loops atomic.Int64
}

// NewMemoryLimit returns a MemoryLimit of this many bytes in all.
func NewMemoryLimit(bytes int) *MemoryLimit { return &MemoryLimit{bytes: bytes} }

// Join adds a loop. The loop must call leave when it ends.
func (m *MemoryLimit) Join() (leave func()) {
	m.loops.Add(1)
	return func() { m.loops.Add(-1) }
}

// Share returns how many bytes one loop may use. It changes when a loop joins or leaves.
func (m *MemoryLimit) Share() int { return m.bytes / int(max(m.loops.Load(), 1)) }
