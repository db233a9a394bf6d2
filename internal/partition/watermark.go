package partition

import "sort"

// Watermark knows up to where a partition is done when its records are done in
// another order than they were read in. Offsets are added as they are read, in
// order; the low watermark is the first one that is not done. It belongs to one
// goroutine.
type Watermark struct {
	open    []openOffset // read and not below the watermark, in order
	next    int64        // everything below was read
	changes int          // how often something became done
	before  []Run        // done by a former owner, above where reading began
	roomy   int          // with more in open it is made smaller
}

// openOffset is one offset; or, of those that are done, a run of them.
type openOffset struct {
	offset, last int64
	state        state
}

// minRoom is with how many open offsets it begins to be worth while to make runs of
// those that are done.
const minRoom = 4096

// state is how far an offset above the watermark has come.
type state int8

const (
	pending state = iota // somebody works on it
	dropped              // nobody does until it is read again
	done
)

// NewWatermark returns a Watermark for reading from the offset on.
func NewWatermark(offset int64) *Watermark { return &Watermark{next: offset} }

// Add notes that the record at offset was read, and reports whether it is to be
// done: one that a former owner has done is not, nor one that was read before and
// not dropped.
func (w *Watermark) Add(offset int64) (fresh bool) {
	if offset < w.next {
		o := w.find(offset)
		fresh = o != nil && o.state == dropped
		if fresh {
			o.state = pending
		}
		return fresh
	}
	for len(w.before) > 0 && w.before[0].End <= offset {
		w.before = w.before[1:]
	}
	fresh = len(w.before) == 0 || offset < w.before[0].First
	w.next = offset + 1
	switch {
	case fresh:
		w.open = append(w.open, openOffset{offset, offset, pending})
	case len(w.open) > 0:
		w.open = append(w.open, openOffset{offset, offset, done})
		w.changes++
	}
	if len(w.open) > max(w.roomy, minRoom) {
		w.compact()
	}
	return fresh
}

// Read notes that everything below next was read, also where there was no
// record.
func (w *Watermark) Read(next int64) { w.next = max(w.next, next) }

// Reset forgets everything: the log was made anew and is read from next on.
func (w *Watermark) Reset(next int64) { *w = *NewWatermark(next) }

// Drop notes that nobody works on the record at offset any more: it will be read
// again.
func (w *Watermark) Drop(offset int64) {
	if o := w.find(offset); o != nil && o.state == pending {
		o.state = dropped
	}
}

// Lose gives up what was dropped below the offset: the log has lost it.
func (w *Watermark) Lose(below int64) {
	for i := range w.open {
		if o := &w.open[i]; o.offset < below && o.state == dropped {
			o.state = done
			w.changes++
		}
	}
	w.advance()
}

// Done notes that the record at offset is done. An offset that was never added,
// or is done already, changes nothing.
func (w *Watermark) Done(offset int64) {
	o := w.find(offset)
	if o == nil || o.state == done {
		return
	}
	o.state = done
	w.changes++
	w.advance()
}

// compact makes runs of what is done, so that one record which stays open for hours
// costs no memory for all that are done meanwhile. It is done again when there is
// twice as much.
func (w *Watermark) compact() {
	var all []openOffset
	for _, o := range w.open {
		if last := len(all) - 1; last >= 0 && o.state == done && all[last].state == done {
			all[last].last = o.last
			continue
		}
		all = append(all, o)
	}
	w.open, w.roomy = all, 2*len(all)
}

// advance lets go of what is done at the watermark.
func (w *Watermark) advance() {
	n := 0
	for n < len(w.open) && w.open[n].state == done {
		n++
	}
	w.open = w.open[n:]
}

// find returns the entry of an offset, or nil if it is not open.
func (w *Watermark) find(offset int64) *openOffset {
	i := sort.Search(len(w.open), func(i int) bool { return w.open[i].last >= offset })
	if i == len(w.open) || w.open[i].offset > offset {
		return nil
	}
	return &w.open[i]
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

// Runs lists what is done above the watermark, in order, what a former owner did
// and was not read again yet included.
func (w *Watermark) Runs() []Run {
	var runs []Run
	for i := 0; i < len(w.open); i++ {
		if w.open[i].state != done {
			continue
		}
		first := w.open[i].offset
		for i+1 < len(w.open) && w.open[i+1].state == done {
			i++
		}
		runs = append(runs, Run{first, w.open[i].last + 1})
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
