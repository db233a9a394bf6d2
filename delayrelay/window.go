package delayrelay

import (
	"container/heap"
	"time"

	"orderclose"
)

// waiting is a record in the window.
type waiting struct {
	message orderclose.Message
	due     time.Time
	release time.Time
}

// window holds what was read ahead of a partition, by release time, so that no
// record is late because another one stands before it in the log.
type window struct {
	heap  releaseHeap
	bytes int
}

func (w *window) push(r waiting) {
	w.bytes += r.message.Size()
	heap.Push(&w.heap, r)
}

// head returns the record that leaves next.
func (w *window) head() (waiting, bool) {
	if len(w.heap) == 0 {
		return waiting{}, false
	}
	return w.heap[0], true
}

// takeReleased removes and returns what is to leave by now, earliest first, up
// to about so many bytes.
func (w *window) takeReleased(now time.Time, bytes int) []waiting {
	var out []waiting
	for len(w.heap) > 0 && bytes > 0 && !now.Before(w.heap[0].release) {
		r := heap.Pop(&w.heap).(waiting)
		size := r.message.Size()
		w.bytes -= size
		bytes -= size
		out = append(out, r)
	}
	return out
}

// releaseHeap is a min-heap by release time; ties leave in the order of the log.
type releaseHeap []waiting

func (h releaseHeap) Len() int { return len(h) }
func (h releaseHeap) Less(i, j int) bool {
	if h[i].release.Equal(h[j].release) {
		return h[i].message.Offset < h[j].message.Offset
	}
	return h[i].release.Before(h[j].release)
}
func (h releaseHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *releaseHeap) Push(x any)   { *h = append(*h, x.(waiting)) }
func (h *releaseHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = waiting{} // let go of its bytes
	*h = old[:len(old)-1]
	return last
}
