package ops

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// Bounds of the search behind a head, per partition. A glance reads some dozens of records.
const (
	// maxFirstGaps is how many of the first gaps are searched. A gap is a run of records that are not acked, between records that are.
	maxFirstGaps = 4
	// lastGapBytes is how much one fetch reads at the start of the last gap, which extends to the end
	// of the log. Records that the owner has not read are there.
	lastGapBytes = 4 * kafka.GlanceBytes
	// samples is how many glances are spread evenly over the rest of the last gap.
	samples = 4
)

// scanned is the result of a search behind a head.
type scanned struct {
	worst    *Head     // the most overdue record; nil: none is overdue
	farthest time.Time // the latest due time; zero: no record has one
	read     int64     // the offset up to which the last gap was read, from its start on
}

// scan searches the records that are not acked for the most overdue one. The head is not always the most overdue: append times and due times are only
// nearly in order. If a broker's clock was wrong for a minute, a head that is due in an hour may be followed by records that are due now. scan reads a
// bounded number of records.
func (in *inspection) scan(ctx context.Context, gaps []wire.Run, now time.Time) (seen scanned, err error) {
	last := gaps[len(gaps)-1]
	glance := func(from int64, maxBytes int32) (next int64, err error) {
		records, next, err := in.log.ReadSome(ctx, in.Topic, in.partition, from, last.End, maxBytes) //mutant:first-gap-only
		for _, m := range records {
			if !open(gaps, m.Offset) {
				continue
			}
			seen.farthest = laterDue(seen.farthest, &m)
			if h := in.headOf(&m); h.Leaves.Before(now) && (seen.worst == nil || h.Leaves.Before(seen.worst.Leaves)) {
				seen.worst = h
			}
		}
		return next, err
	}
	for _, g := range gaps[:min(len(gaps)-1, maxFirstGaps)] {
		if _, err := glance(g.First, kafka.GlanceBytes); err != nil {
			return seen, err
		}
	}
	if seen.read, err = glance(last.First, lastGapBytes); err != nil {
		return seen, err
	}
	for _, offset := range spread(seen.read, last.End) {
		if _, err := glance(offset, kafka.GlanceBytes); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// laterDue returns the due time of m if it is after due, and due otherwise. It is a pure function.
func laterDue(due time.Time, m *wire.Message) time.Time {
	if d, err := m.Due(); err == nil && d.After(due) {
		return d
	}
	return due
}

// open reports whether an offset is in one of the gaps. It is a pure function.
func open(gaps []wire.Run, offset int64) bool {
	return slices.ContainsFunc(gaps, func(g wire.Run) bool { return g.First <= offset && offset < g.End })
}

// spread returns a few offsets between at and end, evenly spaced. It is a pure function.
func spread(at, end int64) (offsets []int64) {
	if at >= end {
		return nil
	}
	step := max((end-at)/samples, 1)
	for i := int64(0); i < samples && at+i*step < end; i++ {
		offsets = append(offsets, at+i*step)
	}
	return offsets
}

// headOf converts a record of the topic to a Head.
func (t TopicGroup) headOf(m *wire.Message) *Head {
	return &Head{Offset: m.Offset, Key: string(m.Key), Appended: printable(m.Appended), Leaves: printable(leaves(t.Length, m))}
}
