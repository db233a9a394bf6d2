package partition

import (
	"sort"

	"github.com/orderclose/orderclose/internal/wire"
)

// watermark tracks up to which offset a partition is done when its records are done in
// another order than they were read. Offsets are added in the order of reading. The low
// watermark is the first offset that is not done. It belongs to one goroutine.
type watermark struct {
	open      []openOffset // the offsets from the watermark on that were read, in order
	memory    []openOffset // the memory of open, with what is free in front of it
	next      int64        // everything below was read
	changes   int          // how many offsets became done
	doneAhead []wire.Run   // runs from next on that a former owner has done
	compactAt int          // compact when open is longer
	found     int          // index in open of the offset that was found last, or near it; -1: before open
	// parts has how many calls of Done are missing, by the offset of a record with several parts.
	parts map[int64]int
}

// openOffset is one offset, or a run of offsets that are done.
type openOffset struct {
	offset, last int64
	done         bool
}

// minCompact is the length of open from which compacting is worthwhile.
const minCompact = 4096

// newWatermark returns a watermark of a partition that is read from the offset on.
func newWatermark(offset int64) *watermark { return &watermark{next: offset, parts: map[int64]int{}} }

// Add notes that the record at offset was read. It reports whether to process the record: not if a former owner has done it, or
// if it was read before.
func (w *watermark) Add(offset int64) (fresh bool) {
	if offset < w.next {
		return false
	}
	for len(w.doneAhead) > 0 && w.doneAhead[0].End <= offset {
		w.doneAhead = w.doneAhead[1:]
	}
	isDone := len(w.doneAhead) > 0 && offset >= w.doneAhead[0].First
	w.next = offset + 1
	switch {
	case !isDone:
		w.push(openOffset{offset, offset, false})
	case len(w.open) > 0:
		w.push(openOffset{offset, offset, true})
		w.changes++
	}
	if len(w.open) > max(w.compactAt, minCompact) {
		w.compact()
	}
	return !isDone
}

// push adds an entry to open. It moves open to the start of its memory if at least half is free: new
// memory for the offsets of each fetch would be up to a sixth of a relay's CPU time.
func (w *watermark) push(o openOffset) {
	full := len(w.open) == cap(w.open)
	if full && cap(w.memory) > 2*len(w.open) {
		w.open, full = append(w.memory[:0], w.open...), false
	}
	w.open = append(w.open, o)
	if full {
		w.memory = w.open
	}
}

// Read notes that everything below next was read, gaps included.
func (w *watermark) Read(next int64) { w.next = max(w.next, next) }

// Done marks an offset as done. It ignores an offset that was never added or is done
// already.
func (w *watermark) Done(offset int64) {
	if n := w.parts[offset]; n > 1 {
		w.parts[offset] = n - 1
		return
	}
	delete(w.parts, offset)
	o := w.find(offset)
	if o == nil || o.done {
		return
	}
	o.done = true
	w.changes++
	w.advance()
}

// compact joins done offsets into runs, so that one record that stays open for hours
// costs no memory for the records that are done meanwhile. It runs again when open has
// doubled.
func (w *watermark) compact() {
	var all []openOffset
	for _, o := range w.open {
		if last := len(all) - 1; last >= 0 && o.done && all[last].done {
			all[last].last = o.last
			continue
		}
		all = append(all, o)
	}
	w.open, w.memory, w.compactAt = all, all, 2*len(all)
}

// advance removes the done offsets at the watermark.
func (w *watermark) advance() {
	n := 0
	for n < len(w.open) && w.open[n].done { //mutant:watermark-passes-gap
		n++
	}
	w.open = w.open[n:]
	w.found = max(w.found-n, -1)
	if len(w.open) == 0 && cap(w.memory) > 4*minCompact {
		w.open, w.memory = nil, nil // a burst leaves no memory behind
	}
}

// find returns the entry of an offset, or nil if the offset is not in open. Records are mostly done
// in the order of their offsets, so it looks first behind the offset that it found last.
func (w *watermark) find(offset int64) *openOffset {
	i := w.found + 1
	if i >= len(w.open) || w.open[i].offset != offset {
		i = sort.Search(len(w.open), func(i int) bool { return w.open[i].last >= offset })
		if i == len(w.open) || w.open[i].offset > offset {
			return nil
		}
	}
	w.found = i
	return &w.open[i]
}

// Low returns the low watermark: everything below it is done.
func (w *watermark) Low() int64 {
	if len(w.open) > 0 {
		return w.open[0].offset
	}
	low := w.next
	for _, r := range w.doneAhead { // the next offsets may be done already
		if r.First <= low {
			low = max(low, r.End)
		}
	}
	return low
}

// Runs lists the done offsets above the watermark, in order, including those that were not read
// in their turn yet.
func (w *watermark) Runs() []wire.Run {
	var runs []wire.Run
	for i := 0; i < len(w.open); i++ {
		if !w.open[i].done {
			continue
		}
		first := w.open[i].offset
		for i+1 < len(w.open) && w.open[i+1].done {
			i++
		}
		runs = append(runs, wire.Run{First: first, End: w.open[i].last + 1})
	}
	low := w.Low()
	for _, r := range w.doneAhead {
		r.First = max(r.First, w.next) // offsets below next are in open
		switch last := len(runs) - 1; {
		case r.End <= low || r.End <= r.First:
		case last >= 0 && runs[last].End >= r.First:
			runs[last].End = r.End
		default:
			runs = append(runs, r)
		}
	}
	return runs
}
