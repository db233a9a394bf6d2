package deadletters

import "math/bits"

// pageBits is how many offsets a page of a set covers, in half a kilobyte. A million
// offsets of a log take 130 KB in each set.
const pageBits = 4096

type page [pageBits / 64]uint64

// offsets is a set of offsets, none negative. The zero value is empty.
type offsets struct {
	pages map[int64]*page
	n     int
}

func (s *offsets) add(offset int64) {
	if s.pages == nil {
		s.pages = map[int64]*page{}
	}
	p := s.pages[offset/pageBits]
	if p == nil {
		p = &page{}
		s.pages[offset/pageBits] = p
	}
	word, bit := at(offset)
	if p[word]&bit == 0 {
		p[word] |= bit
		s.n++
	}
}

func (s *offsets) has(offset int64) bool {
	p := s.pages[offset/pageBits]
	word, bit := at(offset)
	return p != nil && p[word]&bit != 0
}

// remove returns false if the offset was not in the set.
func (s *offsets) remove(offset int64) bool {
	if !s.has(offset) {
		return false
	}
	word, bit := at(offset)
	p := s.pages[offset/pageBits]
	p[word] &^= bit
	s.n--
	if *p == (page{}) {
		delete(s.pages, offset/pageBits)
	}
	return true
}

// removeBelow removes all offsets below offset and returns their number.
func (s *offsets) removeBelow(offset int64) (removed int) {
	for number, p := range s.pages {
		if number > offset/pageBits {
			continue
		}
		for word, b := range p {
			for ; b != 0; b &= b - 1 {
				if o := number*pageBits + int64(word*64+bits.TrailingZeros64(b)); o < offset && s.remove(o) {
					removed++
				}
			}
		}
	}
	return removed
}

// smallest returns the smallest offset; ok is false if the set is empty.
func (s *offsets) smallest() (offset int64, ok bool) {
	first := int64(-1)
	for number := range s.pages {
		if first < 0 || number < first {
			first = number
		}
	}
	if first < 0 {
		return 0, false
	}
	for word, b := range s.pages[first] {
		if b != 0 {
			return first*pageBits + int64(word*64+bits.TrailingZeros64(b)), true
		}
	}
	return 0, false // not reached: empty pages are deleted
}

func at(offset int64) (word int, bit uint64) {
	i := offset % pageBits
	return int(i / 64), 1 << (i % 64)
}
