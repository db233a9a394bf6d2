package audit

import (
	"hash/maphash"
	"slices"
)

// hashes is a set of texts, of which it keeps 8 bytes each: first add all, then
// seal, then ask. That one of n texts that are not in a set of m is taken for one
// that is happens with a probability of n × m / 2^64: for a million of each once in
// 18 million times.
type hashes struct {
	seed maphash.Seed
	all  []uint64
}

func newHashes() *hashes { return &hashes{seed: maphash.MakeSeed()} }

func (h *hashes) add(text string) { h.all = append(h.all, maphash.String(h.seed, text)) }

// seal must be called between add and has.
func (h *hashes) seal() {
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
}

func (h *hashes) has(text string) bool {
	_, found := slices.BinarySearch(h.all, maphash.String(h.seed, text))
	return found
}
