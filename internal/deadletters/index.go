package deadletters

import (
	"math"

	"orderclose"
)

// maxCauses bounds how many causes are told apart. The stages have a dozen;
// others may write to the topic too.
const maxCauses = 64

// otherCause stands for the causes beyond that.
const otherCause = "other"

// Index knows which dead letters are pending, by cause, and what became of those
// that are not. It is fed with the records of the topic, each partition in order.
// Its memory goes by the offsets that the topic spans and not by what waits in
// it: a million take 130 KB for each cause.
type Index struct {
	pending map[string]map[int]*offsets                // by cause and partition
	settled map[orderclose.Settlement]map[int]*offsets // the same, by what was done
}

// NewIndex returns an empty one.
func NewIndex() *Index {
	return &Index{pending: map[string]map[int]*offsets{}, settled: map[orderclose.Settlement]map[int]*offsets{}}
}

// Bury notes a dead letter.
func (x *Index) Bury(at Place, cause string) {
	if x.pending[cause] == nil && len(x.pending) >= maxCauses {
		cause = otherCause
	}
	within(x.pending, cause, at.Partition).add(at.Offset)
}

// Settle notes a mark. One of a dead letter that was not noted, since retention
// has deleted it, or one that was settled before, changes nothing.
func (x *Index) Settle(m orderclose.Mark) {
	for _, partitions := range x.pending {
		if set := partitions[m.Partition]; set != nil && set.remove(m.Offset) {
			if m.How != orderclose.Discarded {
				m.How = orderclose.Redriven // whatever was done, it was not put aside
			}
			within(x.settled, m.How, m.Partition).add(m.Offset)
			return
		}
	}
}

func within[K comparable](all map[K]map[int]*offsets, key K, partition int) *offsets {
	if all[key] == nil {
		all[key] = map[int]*offsets{}
	}
	if all[key][partition] == nil {
		all[key][partition] = &offsets{}
	}
	return all[key][partition]
}

// Find says whether a dead letter was noted, and what became of it: "" while it is
// pending.
func (x *Index) Find(at Place) (how orderclose.Settlement, ok bool) {
	for how, partitions := range x.settled {
		if set := partitions[at.Partition]; set != nil && set.has(at.Offset) {
			return how, true
		}
	}
	for _, partitions := range x.pending {
		if set := partitions[at.Partition]; set != nil && set.has(at.Offset) {
			return "", true
		}
	}
	return "", false
}

// Pending is how many are, by cause. A cause of which all are settled is there
// with 0.
func (x *Index) Pending() map[string]int {
	counts := make(map[string]int, len(x.pending))
	for cause, partitions := range x.pending {
		counts[cause] = 0
		for _, set := range partitions {
			counts[cause] += set.n
		}
	}
	return counts
}

// Oldest is the pending dead letter of a partition with the smallest offset.
func (x *Index) Oldest(partition int) (at Place, ok bool) {
	at = Place{partition, math.MaxInt64}
	for _, partitions := range x.pending {
		if set := partitions[partition]; set != nil {
			if offset, some := set.least(); some && offset < at.Offset {
				at.Offset, ok = offset, true
			}
		}
	}
	return at, ok
}

// Forget drops what lies below the offset, because the log begins there now, and
// returns how many of it were pending.
func (x *Index) Forget(partition int, below int64) (pending int) {
	for _, partitions := range x.settled {
		if set := partitions[partition]; set != nil {
			set.removeBelow(below)
		}
	}
	for _, partitions := range x.pending {
		if set := partitions[partition]; set != nil {
			pending += set.removeBelow(below)
		}
	}
	return pending
}

// feed notes a record of the topic, of whatever kind.
func (x *Index) feed(partition int, m orderclose.Message) {
	if mark, ok := orderclose.ReadMark(&m); ok {
		x.Settle(mark)
		return
	}
	cause, _ := m.Header(orderclose.HeaderCause)
	x.Bury(Place{partition, m.Offset}, cause)
}
