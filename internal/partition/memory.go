package partition

import "sync/atomic"

// MemoryLimit divides an amount of memory, in bytes, between the loops of a process. It is safe for concurrent use.
type MemoryLimit struct {
	bytes int
	loops atomic.Int64
	used  atomic.Int64
}

// NewMemoryLimit returns a MemoryLimit of this many bytes in all.
func NewMemoryLimit(bytes int) *MemoryLimit { return &MemoryLimit{bytes: bytes} }

// Join adds a loop. The loop must call leave when it ends.
func (m *MemoryLimit) Join() (leave func()) {
	m.loops.Add(1)
	return func() { m.loops.Add(-1) }
}

// Use adds to the bytes that the loops use, or takes from them.
func (m *MemoryLimit) Use(bytes int) { m.used.Add(int64(bytes)) }

// Full reports whether a loop that uses this many bytes may use no more: all loops together have reached the limit, and this one more
// than its share. So one loop may use what the others leave, and each can use its share.
func (m *MemoryLimit) Full(bytes int) bool { return int(m.used.Load()) >= m.bytes && bytes > m.Share() }

// Share returns an equal part of the memory for each loop, in bytes. It changes when a loop joins or leaves.
func (m *MemoryLimit) Share() int { return m.bytes / int(max(m.loops.Load(), 1)) }
