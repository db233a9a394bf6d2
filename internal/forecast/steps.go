package forecast

import (
	"time"

	"orderclose"
)

// MaxSteps bounds how many steps a forecast has.
const MaxSteps = 24

const day = 24 * time.Hour

// stepLengths are those that people read easily.
var stepLengths = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// StepLength returns how long a step is, so that at most MaxSteps of them reach
// as far as within.
func StepLength(within time.Duration) time.Duration {
	for _, s := range stepLengths {
		if within <= MaxSteps*s {
			return s
		}
	}
	const longest = MaxSteps * day
	return (within + longest - 1) / longest * day
}

// Edges returns the moments between steps, the first and the last included: from
// now on at least as far as within, which must be positive.
func Edges(now time.Time, within time.Duration) []time.Time {
	step := StepLength(within)
	edges := []time.Time{now}
	for ahead := time.Duration(0); ahead < within; {
		ahead += step
		edges = append(edges, now.Add(ahead))
	}
	return edges
}

// Within returns how far to look ahead if nobody says: a day, or less if no
// bucket holds anything for so long.
func Within(buckets orderclose.Buckets) time.Duration {
	return min(day, buckets[len(buckets)-1].Length)
}

// counts are records by when they leave: before the first edge, between each two
// edges, and after the last.
type counts struct {
	overdue int64
	steps   []int64
	later   int64
}

// count counts the records of a partition that wait in [first, end), by the
// offsets at the edges: of the first record that leaves there or later. Every
// record is counted once, also if an offset is before the one of an earlier edge,
// as can be where producers stamp.
func count(first, end int64, offsets []int64) counts {
	c := counts{steps: make([]int64, len(offsets)-1)}
	at := first
	upTo := func(offset int64) int64 {
		before := at
		at = min(max(at, offset), end)
		return at - before
	}
	c.overdue = upTo(offsets[0])
	for i := range c.steps {
		c.steps[i] = upTo(offsets[i+1])
	}
	c.later = end - at
	return c
}

// sum adds up the partitions of a bucket.
func sum(b orderclose.Bucket, edges []time.Time, partitions []counts) Bucket {
	s := Bucket{Topic: b.Topic, Length: orderclose.ShortDuration(b.Length), Steps: make([]Step, len(edges)-1)}
	for i := range s.Steps {
		s.Steps[i] = Step{From: edges[i], To: edges[i+1]}
	}
	for _, c := range partitions {
		s.Overdue += c.overdue
		s.Later += c.later
		for i, n := range c.steps {
			s.Steps[i].Records += n
		}
	}
	return s
}
