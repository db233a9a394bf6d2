package delayrelay

import (
	"cmp"

	"github.com/orderclose/orderclose/internal/wire"
)

// waiting is a record in the window. Times are Unix milliseconds.
type waiting struct {
	record  wire.RawRecord // with its DueAt
	release int64
}

// before reports whether the record leaves before the other: by release time, ties by offset.
func (w *waiting) before(other *waiting) bool {
	return cmp.Or(cmp.Compare(w.release, other.release), cmp.Compare(w.record.Offset, other.record.Offset)) < 0
}

// window holds the records that were read ahead from a partition, in a min-heap by
// release time, so that no record waits for another one in front of it in the log.
type window struct {
	heap  []waiting        // heap[i] leaves before heap[2i+1] and heap[2i+2]
	taken []wire.RawRecord // what takeReleased took from the heap; kept to reuse its memory
	bytes int
}

func (w *window) push(r waiting) {
	w.bytes += r.record.Size()
	w.heap = append(w.heap, r)
	for i := len(w.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !w.heap[i].before(&w.heap[parent]) {
			break
		}
		w.heap[i], w.heap[parent] = w.heap[parent], w.heap[i]
		i = parent
	}
}

// head returns the record that leaves next.
func (w *window) head() (waiting, bool) {
	if len(w.heap) == 0 {
		return waiting{}, false
	}
	return w.heap[0], true
}

// takeReleased removes and returns records whose release time has come, earliest first, up to about
// the given number of bytes. The slice is valid until the next call of takeReleased.
func (w *window) takeReleased(now int64, bytes int) []wire.RawRecord {
	w.taken = w.taken[:0]
	for len(w.heap) > 0 && bytes > 0 && w.heap[0].release <= now {
		r := w.pop().record
		bytes -= r.Size()
		w.taken = append(w.taken, r)
	}
	return w.taken
}

func (w *window) pop() waiting {
	first, last := w.heap[0], len(w.heap)-1
	w.bytes -= first.record.Size()
	w.heap[0] = w.heap[last]
	w.heap[last] = waiting{} // so that the body can be freed
	w.heap = w.heap[:last]
	for i := 0; ; {
		least, left, right := i, 2*i+1, 2*i+2
		if left < last && w.heap[left].before(&w.heap[least]) {
			least = left
		}
		if right < last && w.heap[right].before(&w.heap[least]) {
			least = right
		}
		if least == i {
			return first
		}
		w.heap[i], w.heap[least] = w.heap[least], w.heap[i]
		i = least
	}
}

// bodyPoolSize is the size of a chunk of memory that bodies share: large enough to save most allocations, small enough that one record which stays
// for long keeps little other memory alive.
const bodyPoolSize = 16 << 10

// bodyPool copies bodies out of a fetch's memory into shared chunks. The garbage collector frees a chunk with its last body.
type bodyPool struct{ free []byte }

func (p *bodyPool) copy(b []byte) []byte {
	if len(b) > len(p.free) {
		if len(b) > bodyPoolSize/4 {
			return append([]byte(nil), b...)
		}
		p.free = make([]byte, bodyPoolSize)
	}
	kept := p.free[:len(b):len(b)]
	p.free = p.free[len(b):]
	copy(kept, b)
	return kept
}
