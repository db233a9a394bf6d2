package ops

import (
	"hash/maphash"
	"slices"
)

// hashes is a set of strings that keeps 8 bytes of each: call add for all, then seal, then
// has. has is wrong for at least one of n strings that are not in a set of m with a
// probability of n × m / 2^64: for a million of each, one in 18 million.
type hashes struct {
	seed maphash.Seed
	all  []uint64
}

func newHashes() *hashes { return &hashes{seed: maphash.MakeSeed()} }

func (h *hashes) add(text string) { h.all = append(h.all, maphash.String(h.seed, text)) }

// seal must be called after the last add and before the first has.
func (h *hashes) seal() {
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
}

func (h *hashes) has(text string) bool {
	_, found := slices.BinarySearch(h.all, maphash.String(h.seed, text))
	return found
}
