package ops

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// Bounds of the search behind a head, per partition. A glance reads some dozens of records.
const (
	// maxFirstGaps is how many of the first gaps are searched. A gap is a run of records that
	// are not acked, between records that are.
	maxFirstGaps = 4
	// lastGapBytes is how much one fetch reads at the start of the last gap, which extends to the end
	// of the log. Records that the owner has not read are there.
	lastGapBytes = 4 * kafka.GlanceBytes
	// samples is how many glances are spread evenly over the rest of the last gap.
	samples = 4
)

// scan searches the records that are not acked for the most overdue one. The head is not
// always the most overdue: append times and due times are only nearly in order. If a
// broker's clock was wrong for a minute, a head that is due in an hour may be followed by
// records that are due now. scan reads a bounded number of records, and returns nil if none
// of them is overdue. farthest is the latest due time that it saw, zero if it saw none. read is the
// offset up to which it has read the last gap, from its start on.
func scan(ctx context.Context, log StatusLog, target TopicGroup, partition int, gaps []wire.Run, now time.Time) (worst *Head, farthest time.Time, read int64, err error) {
	glance := func(from int64, maxBytes int32) (next int64, err error) {
		end := gaps[len(gaps)-1].End
		records, next, err := log.ReadSome(ctx, target.Topic, partition, from, end, maxBytes)
		for _, m := range records {
			if !open(gaps, m.Offset) {
				continue
			}
			farthest = laterDue(farthest, &m)
			if h := headOf(target, &m); h.Leaves.Before(now) && (worst == nil || h.Leaves.Before(worst.Leaves)) {
				worst = h
			}
		}
		return next, err
	}
	last := gaps[len(gaps)-1]
	for _, g := range gaps[:min(len(gaps)-1, maxFirstGaps)] {
		if _, err := glance(g.First, kafka.GlanceBytes); err != nil {
			return worst, farthest, read, err
		}
	}
	if read, err = glance(last.First, lastGapBytes); err != nil {
		return worst, farthest, read, err
	}
	for _, offset := range spread(read, last.End) {
		if _, err := glance(offset, kafka.GlanceBytes); err != nil {
			return worst, farthest, read, err
		}
	}
	return worst, farthest, read, nil
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
	for _, g := range gaps {
		if g.First <= offset && offset < g.End {
			return true
		}
	}
	return false
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

// headOf converts a record to a Head.
func headOf(target TopicGroup, m *wire.Message) *Head {
	return &Head{Offset: m.Offset, Key: string(m.Key), Appended: printable(m.Appended), Leaves: printable(leaves(target.Length, m))}
}
