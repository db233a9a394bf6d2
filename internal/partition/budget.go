package partition

import "sync/atomic"

// Budget shares an amount of memory between the loops of a process: each partition
// that it serves has an equal part. It is safe for concurrent use.
type Budget struct {
	bytes int
	loops atomic.Int64
}

// NewBudget returns a Budget of so many bytes.
func NewBudget(bytes int) *Budget { return &Budget{bytes: bytes} }

// Join counts a loop that has a part from now on, until it calls leave.
func (b *Budget) Join() (leave func()) {
	b.loops.Add(1)
	return func() { b.loops.Add(-1) }
}

// Share is how many bytes one loop may keep.
func (b *Budget) Share() int { return b.bytes / int(max(b.loops.Load(), 1)) }
