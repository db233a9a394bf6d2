package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// median returns the middle value, or the mean of the two middle values.
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

// percentile returns the smallest value that a share q of all values does not exceed.
// The values must be sorted and not empty.
func percentile[T cmp.Ordered](sorted []T, q float64) T {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ms returns d in milliseconds, with a precision of a microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// round rounds v to that many decimal places.
func round(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// durations must be sorted.
type durations []time.Duration

// spread is the distribution of a measure.
type spread struct{ p50, p99, max time.Duration }

func (d durations) spread() spread {
	if len(d) == 0 {
		return spread{}
	}
	return spread{percentile(d, 0.5), percentile(d, 0.99), d[len(d)-1]}
}

func (s spread) json() spreadJSON { return spreadJSON{ms(s.p50), ms(s.p99), ms(s.max)} }
