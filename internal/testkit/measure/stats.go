// Package measure has what the benchmarks do with their numbers: statistics, and one way to print a result.
//
//	stats.go    medians and percentiles
//	print.go    prints a result: JSON for programs, tables for people
package measure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median returns the middle value, or the mean of the two middle values; 0 if there is none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// Percentile returns the smallest value that a share q of all values, from 0 to 1, does not exceed; zero if there is none. The values must be sorted.
func Percentile[T cmp.Ordered](sorted []T, q float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Round rounds v to that many decimal places.
func Round(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// Spread is the distribution of a measure.
type Spread struct {
	P50 Millis `json:"p50_ms"`
	P99 Millis `json:"p99_ms"`
	Max Millis `json:"max_ms"`
}

// SpreadOf sorts durations and returns their distribution; zero if there are none.
func SpreadOf(all []time.Duration) Spread {
	slices.Sort(all)
	return Spread{Millis(Percentile(all, 0.5)), Millis(Percentile(all, 0.99)), Millis(Percentile(all, 1))}
}

// MedianOf returns the median of one number of each round.
func MedianOf[T any, N ~int64 | ~float64](rounds []T, of func(T) N) N {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = float64(of(r))
	}
	return N(Median(values))
}
