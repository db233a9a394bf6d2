package deadletters

import (
	"maps"
	"math/bits"
	"slices"
)

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

// smallest returns the smallest offset of a set that is not empty.
func (s *offsets) smallest() int64 {
	first := slices.Min(slices.Collect(maps.Keys(s.pages))) // empty pages are deleted
	word := slices.IndexFunc(s.pages[first][:], func(b uint64) bool { return b != 0 })
	return first*pageBits + int64(word*64+bits.TrailingZeros64(s.pages[first][word]))
}

func at(offset int64) (word int, bit uint64) {
	i := offset % pageBits
	return int(i / 64), 1 << (i % 64)
}
