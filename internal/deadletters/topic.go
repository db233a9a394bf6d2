package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// MaxLetters bounds the dead letters that a list or a Follower has in memory, some 60 MB.
	MaxLetters = 100_000
	// maxCauses bounds how many causes are counted separately. The stages have a dozen causes, and other programs may write to the topic too.
	maxCauses = 64
	// maxName bounds the length of a cause that is counted separately, in bytes: the longest name of a topic.
	maxName = 249
	// maxText bounds what is kept of a detail and of a key, in bytes.
	maxText = 500
)

// Log is what a Topic and a Follower need of Kafka. Cluster of internal/kafka implements it.
type Log interface {
	reads.Offsets
	reads.Reader
	TopicID(ctx context.Context, topic string) ([16]byte, error)
}

// Topic is the dead-letter topic.
type Topic struct {
	Log    Log
	Name   string
	Events string // the topic of events
	Orders Orders // nil: no database has the orders
}

// Filter selects dead letters. A zero field does not restrict the selection.
type Filter struct {
	Cause  string
	Stage  string
	Source string    // the topic of the record
	Order  string    // the order's id
	Since  time.Time // appended then or later
	Open   bool      // only those that are open
}

// Match reports whether the filter selects a dead letter.
func (f Filter) Match(l *Letter) bool {
	return (f.Cause == "" || f.Cause == l.Cause) && (f.Stage == "" || f.Stage == l.Stage) &&
		(f.Source == "" || f.Source == l.Source.Topic) && (f.Order == "" || f.Order == l.Key) &&
		!l.AppendedAt.Before(f.Since) && (!f.Open || l.IsOpen(time.Now()))
}

// List is the result of Topic.List.
type List struct {
	Letters []Letter `json:"letters"` // the newest first, without their records
	Open    Counts   `json:"open"`    // those of the filter that are open, by cause
	More    bool     `json:"more"`    // the topic has older ones
}

// List reads the topic, and returns at most limit dead letters of the filter.
func (t *Topic) List(ctx context.Context, f Filter, limit int) (list List, err error) {
	begin := kafka.LogStart
	if !f.Since.IsZero() {
		begin = kafka.MomentOf(f.Since)
	}
	spans, err := reads.Between(ctx, t.Log, t.Name, begin, kafka.LogEnd)
	if err != nil {
		return list, err
	}
	list.Letters, list.Open = []Letter{}, Counts{}
	newest := func() {
		slices.SortFunc(list.Letters, func(a, b Letter) int { return compare(b, a) })
		if len(list.Letters) > limit {
			list.Letters, list.More = slices.Clip(list.Letters[:limit]), true
		}
	}
	for _, span := range spans {
		_, err := reads.Scan(ctx, t.Log, t.Name, span, func(read wire.Fetched) error {
			letters, err := t.letters(ctx, span.Partition, read)
			for _, l := range letters {
				if !f.Match(&l) {
					continue
				}
				if list.Letters = append(list.Letters, l); l.IsOpen(time.Now()) {
					list.Open.add(l.Cause)
				}
			}
			if len(list.Letters) > 2*limit {
				newest()
			}
			return err
		})
		if err != nil {
			return list, err
		}
	}
	newest()
	return list, nil
}

// letters returns the dead letters of a fetch, with the states of their orders and without their records.
func (t *Topic) letters(ctx context.Context, partition int, read wire.Fetched) ([]Letter, error) {
	letters := make([]Letter, len(read.Records))
	for i, r := range read.Records {
		m, _ := r.Message() // an invalid record has only its offset
		letters[i] = Read(partition, m).withoutRecord()
	}
	if read.Free != nil {
		read.Free()
	}
	return letters, t.askOrders(ctx, letters)
}

// Find returns the dead letter at a position, with its record, or nil if there is none.
func (t *Topic) Find(ctx context.Context, at Position) (found *Letter, err error) {
	spans, err := reads.Between(ctx, t.Log, t.Name, kafka.LogStart, kafka.LogEnd)
	for _, s := range spans {
		if s.Partition != at.Partition || at.Offset < s.First || at.Offset >= s.End {
			continue
		}
		s.First, s.End = at.Offset, at.Offset+1
		_, err = reads.Scan(ctx, t.Log, t.Name, s, func(read wire.Fetched) error {
			if len(read.Records) == 0 || read.Records[0].Offset != at.Offset {
				return nil
			}
			m, _ := read.Records[0].Message()
			one := []Letter{Read(at.Partition, m)}
			err := t.askOrders(ctx, one)
			found = &one[0]
			return err
		})
	}
	return found, err
}

// compare orders dead letters, the oldest first.
func compare(a, b Letter) int {
	return cmp.Or(a.AppendedAt.Compare(b.AppendedAt), cmp.Compare(a.At.Partition, b.At.Partition), cmp.Compare(a.At.Offset, b.At.Offset))
}

// Other is the cause under which all further ones are counted, those that are too long or not valid UTF-8, and the dead
// letters that a Follower has no room for.
const Other = "other"

// Counts are numbers of dead letters by cause.
type Counts map[string]int

// add counts a dead letter. Its cause becomes the label of a metric, and an alert quotes it.
func (c Counts) add(cause string) {
	label := Other
	if len(cause) <= maxName && utf8.ValidString(cause) { // no label of a metric may be invalid //mutant:raw-cause-label
		label = text.OneLine(cause, maxName)
	}
	if _, known := c[label]; !known && len(c) >= maxCauses {
		label = Other
	}
	c[label]++
}

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
