package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// median returns the middle one, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// percentile returns the least value that a share q of all does not exceed. The
// values must be sorted, and there must be one.
func percentile[T cmp.Ordered](sorted []T, q float64) T {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// round keeps so many digits behind the point.
func round(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// durations is sorted.
type durations []time.Duration

// spread is how a measure is distributed.
type spread struct{ p50, p99, max time.Duration }

func (d durations) spread() spread {
	if len(d) == 0 {
		return spread{}
	}
	return spread{percentile(d, 0.5), percentile(d, 0.99), d[len(d)-1]}
}

func (s spread) json() spreadJSON { return spreadJSON{ms(s.p50), ms(s.p99), ms(s.max)} }
