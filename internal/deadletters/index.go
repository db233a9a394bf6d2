package deadletters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxLetters bounds the dead letters of an Index, some 60 MB.
	maxLetters = 100_000
	// maxCauses bounds how many causes are counted separately. The stages have a dozen causes, and other programs may write to the topic too.
	maxCauses = 64
	// maxName bounds the length of a cause that is counted separately, in bytes: the longest name of a topic.
	maxName = 249
	// maxText bounds what an Index keeps of a detail and of a key, in bytes.
	maxText = 500
)

// Other is the cause under which all further ones are counted, those that are too long or not valid UTF-8, and
// the dead letters that find no room in an Index.
const Other = "other"

// Counts are numbers of dead letters by cause.
type Counts map[string]int

// Total returns the sum.
func (c Counts) Total() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// Text lists the numbers, such as "3 failed, 1 not_found".
func (c Counts) Text() string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(c)) {
		if n := c[cause]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text.OneLine(cmp.Or(cause, "without a cause"), maxName)))
		}
	}
	return strings.Join(parts, ", ")
}

// Index has the pending dead letters, without their records. Its caller passes it the records of the topic, in order
// for each partition. If there is no room for a dead letter, the index counts that one and all behind it in the partition.
// The count may then differ by the dead letters that were resolved twice, until the caller reads them again (see again).
type Index struct {
	resolved bool // resolved ones stay in the index
	most     int  // of letters
	letters  map[Position]*Letter
	unlisted map[int]*unlisted // by partition
	causes   map[string]int    // every cause of a dead letter so far, with the number of the pending ones in letters
	begin    map[int]int64     // by partition: the offset below which everything was forgotten
}

// unlisted are the dead letters of a partition for which there is no room.
type unlisted struct {
	first, last int64
	pending     int
}

func newIndex(resolved bool, most int) *Index {
	return &Index{
		resolved: resolved, most: most, letters: map[Position]*Letter{},
		unlisted: map[int]*unlisted{}, causes: map[string]int{}, begin: map[int]int64{},
	}
}

// read adds records of a partition: the dead letters of the filter, and resolutions.
func (x *Index) read(partition int, batch []wire.Message, f Filter) {
	for _, m := range batch {
		if resolution, ok := DecodeResolution(&m); ok {
			x.resolve(resolution)
		} else if l := Read(partition, m); f.Match(&l) {
			x.add(l)
		}
	}
}

// add adds a dead letter behind all others of its partition.
func (x *Index) add(l Letter) {
	if u := x.unlisted[l.At.Partition]; u != nil {
		u.last = l.At.Offset
		u.pending++
		return
	}
	if len(x.letters) >= x.most {
		x.unlisted[l.At.Partition] = &unlisted{l.At.Offset, l.At.Offset, 1}
		return
	}
	l.Record = wire.Message{}
	l.Detail, l.Key = cut(l.Detail, maxText), cut(l.Key, maxText)
	l.Cause, l.Stage, l.Source.Topic = cut(l.Cause, maxName+1), cut(l.Stage, maxName), cut(l.Source.Topic, maxName)
	x.causes[x.label(l.Cause)]++
	x.letters[l.At] = &l
}

// cut returns at most the first n bytes of s, in memory of their own.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

// label returns the name under which a cause is counted. It becomes the label of a metric, and an alert quotes it.
func (x *Index) label(cause string) string {
	if len(cause) > maxName || !utf8.ValidString(cause) { // no label of a metric may be invalid //mutant:raw-cause-label
		return Other
	}
	cause = text.OneLine(cause, maxName)
	if _, known := x.causes[cause]; !known && len(x.causes) >= maxCauses {
		return Other
	}
	return cause
}

// resolve marks a dead letter as resolved. It changes nothing if the dead letter is not in the index, or was resolved before.
func (x *Index) resolve(m Resolution) {
	if m.How != Discarded {
		m.How = Redriven // an unknown resolution counts as redriven
	}
	at := Position{m.Partition, m.Offset}
	l, known := x.letters[at]
	u := x.unlisted[at.Partition]
	switch {
	case known && l.Resolution != "":
	case known && x.resolved:
		x.causes[x.label(l.Cause)]--
		l.Resolution = m.How
	case known:
		x.remove(l)
	case u != nil && u.first <= at.Offset && at.Offset <= u.last && u.pending > 0:
		u.pending--
	}
}

// remove removes a dead letter. A pending one counts no more.
func (x *Index) remove(l *Letter) {
	if l.Resolution == "" {
		x.causes[x.label(l.Cause)]--
	}
	delete(x.letters, l.At)
}

// forget removes everything below the offset, because the log begins there now. It returns how many pending dead letters it removed.
func (x *Index) forget(partition int, below int64) (lost int) {
	if below <= x.begin[partition] {
		return 0
	}
	x.begin[partition] = below
	for at, l := range x.letters {
		if at.Partition == partition && at.Offset < below {
			if l.Resolution == "" {
				lost++
			}
			x.remove(l)
		}
	}
	if u := x.unlisted[partition]; u != nil && u.last < below {
		lost += u.pending
		delete(x.unlisted, partition)
	}
	return lost
}

// again returns the offsets, by partition, from which the caller must read again, because dead letters found no room and half of it
// is free now. These count no more until they are read.
func (x *Index) again() map[int]int64 {
	from := map[int]int64{}
	if x.resolved || len(x.letters) > x.most/2 {
		return from
	}
	for p, u := range x.unlisted {
		from[p] = u.first
	}
	clear(x.unlisted)
	return from
}

// Unlisted returns how many pending dead letters are not in Letters, because there is no room.
func (x *Index) Unlisted() (n int) {
	for _, u := range x.unlisted {
		n += u.pending
	}
	return n
}

// Pending returns the number of pending dead letters by cause. A cause without pending dead letters has the value 0.
func (x *Index) Pending() Counts {
	counts := Counts(maps.Clone(x.causes))
	if n := x.Unlisted(); n > 0 {
		counts[Other] += n
	}
	return counts
}

// Oldest returns when the oldest pending dead letter was appended; zero: there is none.
func (x *Index) Oldest() (oldest time.Time) {
	for _, l := range x.letters {
		if l.Resolution == "" && (oldest.IsZero() || l.AppendedAt.Before(oldest)) {
			oldest = l.AppendedAt
		}
	}
	return oldest
}

// Letters returns the dead letters of a filter, the oldest first.
func (x *Index) Letters(f Filter) []Letter {
	var found []*Letter
	for _, l := range x.letters {
		if f.Match(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *Letter) int {
		return cmp.Or(a.AppendedAt.Compare(b.AppendedAt), comparePositions(a.At, b.At))
	})
	all := make([]Letter, len(found))
	for i, l := range found {
		all[i] = *l
	}
	return all
}
