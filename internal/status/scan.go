package status

import (
	"context"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// Bounds of a look behind a head, per partition, in glances of some dozens of records.
const (
	// firstGaps is how many gaps are entered. A gap is a run of records that are not
	// acked, between records that are.
	firstGaps = 4
	// lastGap is how many glances the last gap gets from its start on. What its owner has
	// not read stands there.
	lastGap = 4
	// samples is how many glances are spread over what is left of it.
	samples = 4
)

// scan looks for the record that is overdue the most among those that are not acked. The
// head alone does not tell: append times and due times are only nearly in order, and a
// broker's clock that was wrong for a minute leaves a head that is due in an hour before
// records that are due now. scan reads a bounded part; it returns nil if it found none.
func scan(ctx context.Context, log Log, place Place, partition int, gaps []partition.Run, now time.Time) (worst *Head, err error) {
	see := func(from int64) (next int64, err error) {
		end := gaps[len(gaps)-1].End
		records, next, err := log.Glance(ctx, place.Topic, partition, from, end)
		for _, m := range records {
			if h := headOf(place, &m); open(gaps, m.Offset) && h.Leaves.Before(now) && (worst == nil || h.Leaves.Before(worst.Leaves)) {
				worst = h
			}
		}
		return next, err
	}
	last := gaps[len(gaps)-1]
	for _, g := range gaps[:min(len(gaps)-1, firstGaps)] {
		if _, err := see(g.First); err != nil {
			return worst, err
		}
	}
	at := last.First
	for i := 0; i < lastGap && at < last.End; i++ {
		if at, err = see(at); err != nil {
			return worst, err
		}
	}
	for _, offset := range spread(at, last.End) {
		if _, err := see(offset); err != nil {
			return worst, err
		}
	}
	return worst, nil
}

// open says whether an offset is in one of the gaps. Pure.
func open(gaps []partition.Run, offset int64) bool {
	for _, g := range gaps {
		if g.First <= offset && offset < g.End {
			return true
		}
	}
	return false
}

// spread returns a few offsets from at to end, at the same distance. Pure.
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

// headOf describes a record as it is reported.
func headOf(place Place, m *orderclose.Message) *Head {
	return &Head{Offset: m.Offset, Key: string(m.Key), Appended: sane(m.Appended), Leaves: sane(leaves(place.Length, m))}
}
