package delayrelay

import "sync/atomic"

// budget shares the memory for look-aheads between the loops of a process: each
// partition that it serves has an equal part.
type budget struct {
	bytes int
	loops atomic.Int64
}

// share is how many bytes one loop may keep.
func (b *budget) share() int { return b.bytes / int(max(b.loops.Load(), 1)) }
