package partition

import "sync/atomic"

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
