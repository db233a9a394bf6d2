package deadletters

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// Log is what a Topic and a Follower need of Kafka. Cluster of internal/kafka implements it.
type Log interface {
	reads.Offsets
	send.Sender
	SendTo(ctx context.Context, topic string, partition int, records []wire.RawRecord, done func(send.Result))
	TopicID(ctx context.Context, topic string) ([16]byte, error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// Topic is the dead-letter topic.
type Topic struct {
	Log  Log
	Name string

	most int // of the letters of an Index; 0: maxLetters
}

// Filter selects dead letters. A zero field does not restrict the selection.
type Filter struct {
	Cause  string
	Stage  string
	Source string    // the topic of the record
	Order  string    // the order's id
	Since  time.Time // appended then or later
	// Positions, if not empty, are the only dead letters.
	Positions []Position
	// Through is a snapshot: the last offset to read of each partition. Nil: to the end. A partition that is not listed is left out.
	Through []Position
}

// Selects reports whether the filter leaves dead letters of the snapshot out.
func (f Filter) Selects() bool {
	return f.Cause != "" || f.Stage != "" || f.Source != "" || f.Order != "" || !f.Since.IsZero() || len(f.Positions) > 0
}

// last returns the last offset to read of a partition. It returns false if the partition is left out.
func (f Filter) last(partition int) (offset int64, ok bool) {
	if f.Through == nil {
		return math.MaxInt64, true
	}
	for _, at := range f.Through {
		if at.Partition == partition {
			offset, ok = at.Offset, true
		}
	}
	return offset, ok
}

// Match reports whether the filter selects a dead letter, which may be resolved.
func (f Filter) Match(l *Letter) bool {
	last, ok := f.last(l.At.Partition)
	return ok && l.At.Offset <= last && (len(f.Positions) == 0 || slices.Contains(f.Positions, l.At)) && (f.Cause == "" || f.Cause == l.Cause) &&
		(f.Stage == "" || f.Stage == l.Stage) &&
		(f.Source == "" || f.Source == l.Source.Topic) && (f.Order == "" || f.Order == l.Key) &&
		!l.AppendedAt.Before(f.Since)
}

// snapshot returns, by partition, the offsets of the dead letters of the filter and of the resolutions behind them, up to the present end.
func (t *Topic) snapshot(ctx context.Context, f Filter) ([]reads.Span, error) {
	begin := kafka.LogStart
	if !f.Since.IsZero() {
		begin = kafka.MomentOf(f.Since)
	}
	all, err := reads.Between(ctx, t.Log, t.Name, begin, kafka.LogEnd)
	var spans []reads.Span
	for _, s := range all {
		if len(f.Positions) > 0 {
			smallest := s.End
			for _, p := range f.Positions {
				if p.Partition == s.Partition {
					smallest = min(smallest, p.Offset)
				}
			}
			s.First = max(s.First, smallest)
		}
		if s.First < s.End {
			spans = append(spans, s)
		}
	}
	return spans, err
}

// Index takes a snapshot of the topic, and returns its offsets with an Index of the pending dead letters of the filter. It has also those of
// Filter.Positions that are resolved.
func (t *Topic) Index(ctx context.Context, f Filter) (spans []reads.Span, x *Index, err error) {
	return t.index(ctx, f, newIndex(len(f.Positions) > 0, cmp.Or(t.most, maxLetters)))
}

func (t *Topic) index(ctx context.Context, f Filter, x *Index) ([]reads.Span, *Index, error) {
	spans, err := t.snapshot(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	for todo := spans; len(todo) > 0; todo = rest(spans, x.again()) {
		for _, s := range todo {
			err := t.read(ctx, s, func(batch []wire.Message) error {
				x.read(s.Partition, batch, f)
				return nil
			})
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return spans, x, nil
}

// rest returns the parts of the spans from these offsets on. A partition without an offset is left out.
func rest(spans []reads.Span, from map[int]int64) (all []reads.Span) {
	for _, s := range spans {
		if first, ok := from[s.Partition]; ok {
			s.First = first
			all = append(all, s)
		}
	}
	return all
}

// Letters reads the spans again. For each fetch, it calls each with the dead letters that
// are in the index, in order, with their record and their resolution, until each returns an error.
func (t *Topic) Letters(ctx context.Context, spans []reads.Span, x *Index, each func([]Letter) error) error {
	for _, s := range spans {
		err := t.read(ctx, s, func(batch []wire.Message) error {
			var letters []Letter
			for _, m := range batch {
				if known, ok := x.letters[Position{s.Partition, m.Offset}]; ok {
					l := Read(s.Partition, m)
					l.Resolution = known.Resolution
					letters = append(letters, l)
				}
			}
			if len(letters) == 0 {
				return nil
			}
			return each(letters)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Find returns the dead letter at a position, with its record and its resolution, or nil if there is none.
func (t *Topic) Find(ctx context.Context, at Position) (found *Letter, err error) {
	spans, x, err := t.Index(ctx, Filter{Positions: []Position{at}})
	if err == nil {
		err = t.Letters(ctx, spans, x, func(letters []Letter) error {
			found = &letters[0]
			return nil
		})
	}
	return found, err
}

// List returns an index of the dead letters of the filter that it has room for, the oldest. With resolved it includes resolved dead letters.
func (t *Topic) List(ctx context.Context, f Filter, resolved bool) (*Index, error) {
	_, x, err := t.index(ctx, f, newIndex(resolved, cmp.Or(t.most, maxLetters)))
	return x, err
}

// read reads a span. It skips records that retention deletes meanwhile, and damaged ones: they can be neither shown nor sent.
func (t *Topic) read(ctx context.Context, s reads.Span, each func([]wire.Message) error) error {
	_, err := reads.Scan(ctx, t.Log, t.Name, s, func(f wire.Fetched) error {
		if len(f.Records) == 0 {
			return nil
		}
		return each(messages(f.Records))
	})
	return err
}

// messages decodes records and copies their bytes. An invalid record has only its offset.
func messages(batch []wire.RawRecord) []wire.Message {
	all := make([]wire.Message, len(batch))
	for i, r := range batch {
		all[i], _ = r.Message()
	}
	return all
}
