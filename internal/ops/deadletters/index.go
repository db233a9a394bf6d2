package deadletters

import (
	"math"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxCauses bounds how many causes are counted separately. The stages have a dozen causes,
	// and other programs may write to the topic too.
	maxCauses = 64
	// maxName bounds the length of a cause, a stage and a source that is counted separately, in
	// bytes: the longest name of a topic.
	maxName = 249
)

// Other is the cause, stage and source under which all further ones are counted, and those that
// are too long or not valid UTF-8.
const Other = "other"

// countable returns the name under which a cause, a stage or a source is counted.
func countable(name string) string {
	if len(name) > maxName || !utf8.ValidString(name) { // no label of a metric may be invalid
		return Other
	}
	return name
}

// Index holds which dead letters are pending, by cause, and how the others were resolved.
// Its caller passes it the records of the topic, in order for each partition. Its memory
// depends on the range of offsets and not on the number of dead letters: a million offsets
// take 130 KB for each cause.
type Index struct {
	pending map[string]map[int]*offsets              // by cause and partition
	settled map[wire.ResolutionKind]map[int]*offsets // by resolution and partition
}

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{pending: map[string]map[int]*offsets{}, settled: map[wire.ResolutionKind]map[int]*offsets{}}
}

// Add adds a dead letter, and returns the cause under which it is counted.
func (x *Index) Add(at Position, cause string) string {
	cause = countable(cause)
	if x.pending[cause] == nil && len(x.pending) >= maxCauses {
		cause = Other
	}
	setOf(x.pending, cause, at.Partition).add(at.Offset)
	return cause
}

// Resolve adds a resolution, and returns how the dead letter is resolved now. It changes nothing
// and returns false if the dead letter is not in the index, because retention has deleted it, or
// if it was resolved before.
func (x *Index) Resolve(m wire.Resolution) (how wire.ResolutionKind, ok bool) {
	for _, partitions := range x.pending {
		if set := partitions[m.Partition]; set != nil && set.remove(m.Offset) {
			if m.How != wire.Discarded {
				m.How = wire.Redriven // an unknown resolution counts as redriven
			}
			setOf(x.settled, m.How, m.Partition).add(m.Offset)
			return m.How, true
		}
	}
	return "", false
}

func setOf[K comparable](all map[K]map[int]*offsets, key K, partition int) *offsets {
	if all[key] == nil {
		all[key] = map[int]*offsets{}
	}
	if all[key][partition] == nil {
		all[key][partition] = &offsets{}
	}
	return all[key][partition]
}

// Find reports whether the index has a dead letter, and how it was resolved: "" while it is
// pending.
func (x *Index) Find(at Position) (how wire.ResolutionKind, ok bool) {
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

// Pending returns the number of pending dead letters by cause. A cause without pending dead
// letters has the value 0.
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

// Oldest returns the pending dead letter with the smallest offset of a partition.
func (x *Index) Oldest(partition int) (at Position, ok bool) {
	at = Position{partition, math.MaxInt64}
	for _, partitions := range x.pending {
		if set := partitions[partition]; set != nil && set.n > 0 {
			at.Offset, ok = min(at.Offset, set.smallest()), true
		}
	}
	return at, ok
}

// Forget removes everything below the offset, because the log begins there now. It returns
// how many pending dead letters it removed.
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

// add adds a record of the topic: a dead letter or a resolution.
func (x *Index) add(partition int, m wire.Message) {
	if resolution, ok := wire.DecodeResolution(&m); ok {
		x.Resolve(resolution)
		return
	}
	cause, _ := m.Header(wire.HeaderCause)
	x.Add(Position{partition, m.Offset}, cause)
}
