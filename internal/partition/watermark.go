package partition

import "slices"

// Watermark knows up to where a partition is done when its records are done in
// another order than they were read in. Offsets are added as they are read, in
// order; the low watermark is the first one that is not done. It belongs to one
// goroutine.
type Watermark struct {
	open []openOffset // read and not below the watermark, in order
	next int64        // everything below was read
}

type openOffset struct {
	offset int64
	done   bool
}

// NewWatermark returns a Watermark for reading from the offset on.
func NewWatermark(offset int64) *Watermark { return &Watermark{next: offset} }

// Add notes that the record at offset was read and is to be done.
func (w *Watermark) Add(offset int64) {
	w.open = append(w.open, openOffset{offset: offset})
	w.next = offset + 1
}

// Read notes that everything below next was read, also where there was no
// record. If next is lower than before it reports true: reading began anew there,
// because the log was made anew. What was open is forgotten, and whatever else is
// kept of the old log must be, since its offsets now mean other records.
func (w *Watermark) Read(next int64) (anew bool) {
	if anew = next < w.next; anew {
		w.open = nil
	}
	w.next = next
	return anew
}

// Done notes that the record at offset is done. An offset that was never added,
// or is done already, changes nothing.
func (w *Watermark) Done(offset int64) {
	i, found := slices.BinarySearchFunc(w.open, offset, func(o openOffset, target int64) int {
		return int(min(max(o.offset-target, -1), 1))
	})
	if !found {
		return
	}
	w.open[i].done = true
	n := 0
	for n < len(w.open) && w.open[n].done {
		n++
	}
	w.open = w.open[n:]
}

// Low is the low watermark: everything below it is done.
func (w *Watermark) Low() int64 {
	if len(w.open) > 0 {
		return w.open[0].offset
	}
	return w.next
}

// Open is how many records, done or not, lie at or above the watermark.
func (w *Watermark) Open() int { return len(w.open) }
