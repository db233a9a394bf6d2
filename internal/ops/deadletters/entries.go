package deadletters

import (
	"slices"
	"sort"

	"github.com/orderclose/orderclose/internal/wire"
)

// entry is what a Catalog keeps of a dead letter, in 48 bytes.
type entry struct {
	offset int64
	at     int64 // append time in unix milliseconds
	// order is the append time, or that of an earlier record of the partition if it is later,
	// because clocks of brokers differ. So order never falls within a partition.
	order                int64
	resolved             int64  // offset of the resolution, which is in the same partition; 0: pending
	key                  uint64 // hash of the key
	cause, stage, source uint8  // ids of names
	how                  uint8  // index in resolutions
}

// resolutions are the values of entry.how.
var resolutions = []wire.ResolutionKind{"", wire.Redriven, wire.Discarded}

const pending = 0

// blockLen is the number of entries of a block. A block takes 48 KB, also if it has one entry.
const blockLen = 1024

// entries are the entries of one partition, in the order of their offsets. The zero value is
// empty. Entries are added at the end and removed at the beginning, so blocks need no copying.
type entries struct {
	blocks []*[blockLen]entry
	skip   int // entries of the first block that were removed
	n      int
	// left is the number of entries that left because of the bound on all entries, and leftBelow
	// the offset below which they lie.
	left      int
	leftBelow int64
}

// at returns entry i, from 0 to n-1.
func (s *entries) at(i int) *entry {
	n := uint(i + s.skip)
	return &s.blocks[n/blockLen][n%blockLen]
}

// add adds an entry behind all others. It sets its order.
func (s *entries) add(e entry) {
	e.order = e.at
	if s.n > 0 {
		e.order = max(e.at, s.at(s.n-1).order)
	}
	if s.skip+s.n == len(s.blocks)*blockLen {
		s.blocks = append(s.blocks, new([blockLen]entry))
	}
	s.n++
	*s.at(s.n - 1) = e
}

// search returns the number of entries below an offset.
func (s *entries) search(offset int64) int {
	return sort.Search(s.n, func(i int) bool { return s.at(i).offset >= offset })
}

// find returns the entry of an offset, or nil.
func (s *entries) find(offset int64) *entry {
	if i := s.search(offset); i < s.n && s.at(i).offset == offset {
		return s.at(i)
	}
	return nil
}

// removeFirst removes the first n entries.
func (s *entries) removeFirst(n int) {
	s.n -= n
	s.skip += n
	whole := s.skip / blockLen
	s.blocks = slices.Delete(s.blocks, 0, whole)
	s.skip -= whole * blockLen
}

// forget removes the entries below an offset, because the log begins there now.
func (s *entries) forget(below int64) {
	s.removeFirst(s.search(below))
	if below >= s.leftBelow {
		s.left = 0
	}
}

// leave removes the first entry, because there are too many, and returns the offset behind it.
func (s *entries) leave() int64 {
	s.leftBelow = s.at(0).offset + 1
	s.left++
	s.removeFirst(1)
	return s.leftBelow
}

// names numbers strings, so that each entry needs one byte for them. Beyond most strings, which is at
// most 255, further ones are Other.
type names struct {
	most int
	ids  map[string]uint8
	all  []string
}

// id returns the number of a name.
func (n *names) id(name string) uint8 {
	name = countable(name)
	id, ok := n.ids[name]
	switch {
	case ok:
		return id
	case len(n.all) >= n.most && name != Other:
		return n.id(Other)
	case n.ids == nil:
		n.ids = map[string]uint8{}
	}
	id = uint8(len(n.all))
	n.ids[name] = id
	n.all = append(n.all, name)
	return id
}

// counts returns numbers, by id, under their names.
func (n *names) counts(byID []int) Counts {
	counts := Counts{}
	for id, name := range n.all {
		counts[name] = byID[id]
	}
	return counts
}
