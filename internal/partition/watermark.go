package partition

import "sort"

// Watermark knows up to where a partition is done when its records are done in
// another order than they were read in. Offsets are added as they are read, in
// order; the low watermark is the first one that is not done. It belongs to one
// goroutine.
type Watermark struct {
	open      []openOffset // read and not below the watermark, in order
	next      int64        // everything below was read
	doneAbove int          // of open, how many are done
	before    []Run        // done by a former owner, above where reading began
}

type openOffset struct {
	offset int64
	done   bool
}

// NewWatermark returns a Watermark for reading from the offset on.
func NewWatermark(offset int64) *Watermark { return &Watermark{next: offset} }

// Add notes that the record at offset was read, and reports whether it is to be
// done: one that a former owner has done is not.
func (w *Watermark) Add(offset int64) (fresh bool) {
	for len(w.before) > 0 && w.before[0].End <= offset {
		w.before = w.before[1:]
	}
	fresh = len(w.before) == 0 || offset < w.before[0].First
	w.next = offset + 1
	if !fresh && len(w.open) == 0 {
		return false
	}
	w.open = append(w.open, openOffset{offset, !fresh})
	if !fresh {
		w.doneAbove++
	}
	return fresh
}

// Read notes that everything below next was read, also where there was no
// record. If next is lower than before it reports true: reading began anew there,
// because the log was made anew. What was open is forgotten, and whatever else is
// kept of the old log must be, since its offsets now mean other records.
func (w *Watermark) Read(next int64) (anew bool) {
	if anew = next < w.next; anew {
		w.open, w.before, w.doneAbove = nil, nil, 0
	}
	w.next = next
	return anew
}

// Done notes that the record at offset is done. An offset that was never added,
// or is done already, changes nothing.
func (w *Watermark) Done(offset int64) {
	i := sort.Search(len(w.open), func(i int) bool { return w.open[i].offset >= offset })
	if i == len(w.open) || w.open[i].offset != offset || w.open[i].done {
		return
	}
	w.open[i].done = true
	w.doneAbove++
	n := 0
	for n < len(w.open) && w.open[n].done {
		n++
	}
	w.open = w.open[n:]
	w.doneAbove -= n
}

// Low is the low watermark: everything below it is done.
func (w *Watermark) Low() int64 {
	if len(w.open) > 0 {
		return w.open[0].offset
	}
	low := w.next
	for _, r := range w.before { // what comes next may be done already
		if r.First <= low {
			low = max(low, r.End)
		}
	}
	return low
}

// Open is how many records, done or not, lie at or above the watermark.
func (w *Watermark) Open() int { return len(w.open) }

// Runs lists what is done above the watermark, in order, what a former owner did
// and was not read again yet included.
func (w *Watermark) Runs() []Run {
	var runs []Run
	if w.doneAbove > 0 {
		for i := 0; i < len(w.open); i++ {
			if !w.open[i].done {
				continue
			}
			first := w.open[i].offset
			for i+1 < len(w.open) && w.open[i+1].done {
				i++
			}
			runs = append(runs, Run{first, w.open[i].offset + 1})
		}
	}
	low := w.Low()
	for _, r := range w.before {
		r.First = max(r.First, w.next) // below that it was read again
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
