package deadletters

import (
	"hash/maphash"
	"math"
	"slices"
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
	if len(name) > maxName || !utf8.ValidString(name) { // no label of a metric may be invalid //mutant:raw-cause-label
		return Other
	}
	return name
}

// Index holds dead letters, pending or not, in at most 64 bytes of memory for each. Its caller passes
// it the records of the topic, in order for each partition.
type Index struct {
	hash                    func(key string) uint64 // with a seed of its own, so that nobody can make two keys with one hash
	partitions              map[int]*entries
	letters                 int // entries of all partitions
	causes, stages, sources names
}

func newIndex() *Index {
	seed := maphash.MakeSeed()
	return &Index{
		hash:       func(key string) uint64 { return maphash.String(seed, key) },
		partitions: map[int]*entries{},
		causes:     names{most: maxCauses}, stages: names{most: math.MaxUint8}, sources: names{most: math.MaxUint8},
	}
}

// add adds a dead letter behind all others of its partition.
func (x *Index) add(l Letter) {
	all := x.partitions[l.At.Partition]
	if all == nil {
		all = &entries{}
		x.partitions[l.At.Partition] = all
	}
	all.add(entry{
		offset: l.At.Offset, at: l.AppendedAt.UnixMilli(), key: x.hash(l.Key),
		cause: x.causes.id(l.Cause), stage: x.stages.id(l.Stage), source: x.sources.id(l.Source.Topic),
	})
	x.letters++
}

// resolve marks an entry as resolved by the record at offset. It changes nothing if the dead letter is
// not in the index, or was resolved before.
func (x *Index) resolve(m wire.Resolution, offset int64) {
	if m.How != wire.Discarded {
		m.How = wire.Redriven // an unknown resolution counts as redriven
	}
	if e := x.find(Position{m.Partition, m.Offset}); e != nil && e.how == pending {
		e.how, e.resolved = uint8(slices.Index(resolutions, m.How)), offset
	}
}

// find returns the entry of a position, or nil.
func (x *Index) find(at Position) *entry {
	if all := x.partitions[at.Partition]; all != nil {
		return all.find(at.Offset)
	}
	return nil
}

// eachPending calls f with the entries that are pending.
func (x *Index) eachPending(f func(e *entry)) {
	for _, all := range x.partitions {
		for i := range all.n {
			if e := all.at(i); e.how == pending {
				f(e)
			}
		}
	}
}

// Counts are numbers of dead letters by name, such as their cause.
type Counts map[string]int

// Total returns the sum.
func (c Counts) Total() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// Pending returns the number of pending dead letters by cause. A cause without pending dead
// letters has the value 0.
func (x *Index) Pending() Counts {
	byCause := make([]int, len(x.causes.all))
	x.eachPending(func(e *entry) { byCause[e.cause]++ })
	return x.causes.counts(byCause)
}

// forget removes everything below the offset, because the log begins there now. It reports whether
// that changed anything, and how many pending dead letters it removed.
func (x *Index) forget(partition int, below int64) (changed bool, lost int) {
	all := x.partitions[partition]
	if all == nil {
		return false, 0
	}
	n, left := all.search(below), all.left
	for i := range n {
		if all.at(i).how == pending {
			lost++
		}
	}
	all.forget(below)
	lost += left - all.left // they count as pending, see watched
	x.letters -= n
	return n > 0 || all.left != left, lost
}
