package partition

import "sync/atomic"

// MemoryLimit divides an amount of memory equally between the loops of a process. It is safe
// for concurrent use.
type MemoryLimit struct {
	bytes int
	loops atomic.Int64
}

// NewMemoryLimit returns a MemoryLimit of the given bytes.
func NewMemoryLimit(bytes int) *MemoryLimit { return &MemoryLimit{bytes: bytes} }

// Join adds a loop, until leave is called.
func (m *MemoryLimit) Join() (leave func()) {
	m.loops.Add(1)
	return func() { m.loops.Add(-1) }
}

// Share is the part of one loop, in bytes.
func (m *MemoryLimit) Share() int { return m.bytes / int(max(m.loops.Load(), 1)) }
