package main

import (
	"math"
	"slices"
	"time"
)

// durations is sorted, shortest first.
type durations []time.Duration

// at returns the p-th percentile by nearest rank, in milliseconds; 0 if there is none.
func (d durations) at(p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	rank := int(math.Ceil(p*float64(len(d))/100-1e-9)) - 1
	return inMS(d[min(max(rank, 0), len(d)-1)])
}

func inMS(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 3) }

func round(v float64, digits int) float64 {
	unit := math.Pow(10, float64(digits))
	return math.Round(v*unit) / unit
}

// median returns the middle value, or the mean of the two middle values; 0 if there is none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
