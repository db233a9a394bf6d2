package checker

import (
	"slices"
	"time"
)

// Sample is a closed order: when it was due, and how much later it was closed, both by the clock of the database.
type Sample struct {
	Due  time.Time
	Late time.Duration
	Path string // pipeline or sweep
}

// Quantile returns the q-quantile of durations, which it sorts; 0 if there are none.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
