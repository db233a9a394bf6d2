package partition

import "sync/atomic"

// Budget divides an amount of memory equally between the loops of a process. It is safe
// for concurrent use.
type Budget struct {
	bytes int
	loops atomic.Int64
}

// NewBudget returns a Budget of the given bytes.
func NewBudget(bytes int) *Budget { return &Budget{bytes: bytes} }

// Join adds a loop, until leave is called.
func (b *Budget) Join() (leave func()) {
	b.loops.Add(1)
	return func() { b.loops.Add(-1) }
}

// Share is the part of one loop, in bytes.
func (b *Budget) Share() int { return b.bytes / int(max(b.loops.Load(), 1)) }
