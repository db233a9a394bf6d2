package delayrelay

import (
	"cmp"
	"slices"

	"orderclose"
)

// waiting is a record in the window. Times are unix milliseconds.
type waiting struct {
	record  orderclose.RawRecord // with its DueAt
	release int64
	fetched bool // its body is in the memory of a fetch
}

// before says whether a leaves before b: by release, ties in the order of the
// log.
func (a *waiting) before(b *waiting) bool {
	return cmp.Or(cmp.Compare(a.release, b.release), cmp.Compare(a.record.Offset, b.record.Offset)) < 0
}

// window holds what was read ahead of a partition in a min-heap by release time,
// so that no record is late because another one stands before it in the log.
// What was to leave when it came is kept apart: it needs no order.
type window struct {
	ready []waiting
	heap  []waiting // heap[i] leaves before heap[2i+1] and heap[2i+2]
	bytes int
}

// grow makes room for n more that are ready.
func (w *window) grow(n int) { w.ready = slices.Grow(w.ready, n) }

// reuse takes what takeReleased returned back, for what will be ready next. Nobody may
// look at it again.
func (w *window) reuse(taken []waiting) {
	if w.ready == nil {
		clear(taken) // let go of their bytes
		w.ready = taken[:0]
	}
}

// trim gives up the room for what is ready, if there is nothing in it.
func (w *window) trim() {
	if len(w.ready) == 0 {
		w.ready = nil
	}
}

// pushReady adds a record that is to leave at once.
func (w *window) pushReady(r waiting) {
	w.bytes += r.record.Size()
	w.ready = append(w.ready, r)
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
	switch {
	case len(w.ready) > 0:
		return w.ready[0], true
	case len(w.heap) > 0:
		return w.heap[0], true
	}
	return waiting{}, false
}

// len is how many records wait.
func (w *window) len() int { return len(w.ready) + len(w.heap) }

// takeReleased removes and returns what is to leave by now, earliest first, up
// to about so many bytes.
func (w *window) takeReleased(now int64, bytes int) []waiting {
	var out []waiting
	for n := range w.ready {
		if bytes <= 0 {
			out, w.ready = w.ready[:n:n], w.ready[n:]
			return out
		}
		w.bytes -= w.ready[n].record.Size()
		bytes -= w.ready[n].record.Size()
	}
	out, w.ready = w.ready, nil
	for len(w.heap) > 0 && bytes > 0 && w.heap[0].release <= now {
		r := w.pop()
		bytes -= r.record.Size()
		out = append(out, r)
	}
	if len(out) == 0 {
		w.ready = out // room that reuse has given
	}
	return out
}

// shed removes and returns the latest releases until the rest, the ready ones
// aside, is within so many bytes; the earliest one stays in any case.
func (w *window) shed(bytes int) []waiting {
	w.sort()
	keep := 0
	for size := 0; keep < len(w.heap); keep++ {
		if size += w.heap[keep].record.Size(); size > bytes && keep > 0 {
			break
		}
	}
	shed := slices.Clone(w.heap[keep:])
	for _, r := range shed {
		w.bytes -= r.record.Size()
	}
	clear(w.heap[keep:]) // let go of their bytes
	w.heap = w.heap[:keep]
	return shed
}

// limit has no record leave later than the given time.
func (w *window) limit(latest int64) {
	for i := range w.heap {
		w.heap[i].release = min(w.heap[i].release, latest)
	}
	w.sort() // among equal releases the offset decides
}

// sort sorts the heap, which leaves it a heap.
func (w *window) sort() {
	slices.SortFunc(w.heap, func(a, b waiting) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
}

func (w *window) pop() waiting {
	first, last := w.heap[0], len(w.heap)-1
	w.bytes -= first.record.Size()
	w.heap[0] = w.heap[last]
	w.heap[last] = waiting{} // let go of its bytes
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

// arenaSize is how much memory bodies share that are kept together: large enough
// to spare most allocations, small enough that one record which stays long keeps
// little alive that is not its own.
const arenaSize = 16 << 10

// arena copies bodies out of a fetch's buffer into shared pieces of memory.
type arena struct{ free []byte }

func (a *arena) copy(b []byte) []byte {
	if len(b) > len(a.free) {
		if len(b) > arenaSize/4 {
			return append([]byte(nil), b...)
		}
		a.free = make([]byte, arenaSize)
	}
	own := a.free[:len(b):len(b)]
	a.free = a.free[len(b):]
	copy(own, b)
	return own
}
