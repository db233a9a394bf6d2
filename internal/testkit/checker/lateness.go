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

// NormalLateness is the least limit of a normal lateness: see Normal.
const NormalLateness = time.Second

const (
	// normalShare is the share of the orders of a second that must not be later than the normal lateness. Some orders are never published and only a
	// sweep closes them: those whose checkout failed between its transaction and Kafka.
	normalShare = 0.95
	// normalFor is how long lateness must be normal, by due time.
	normalFor = 3
)

// Normal returns the lateness up to which an order is not late: a second, or twice what 95 % of the orders needed that were due between from and to,
// while nothing was wrong. On a machine that does other work too, that may be more than a second.
func Normal(samples []Sample, from, to time.Time) time.Duration {
	var late []time.Duration
	for _, s := range samples {
		if !s.Due.Before(from) && s.Due.Before(to) {
			late = append(late, s.Late)
		}
	}
	return max(NormalLateness, 2*Quantile(late, normalShare))
}

// Recovery returns how long after the end of a fault lateness was normal again: the time from the end to the first moment from which on, for three
// seconds of due times in a row, at least 95 % of the orders that were closed were closed within the normal lateness. It is 0 if lateness was normal at
// the end. Seconds in which no order was due neither count nor interrupt. If a later fault begins before, its effect is included, so the result is an
// upper bound. ok is false if lateness was never normal again in the samples.
//
// The samples are sorted by due time.
func Recovery(samples []Sample, end time.Time, normalLateness time.Duration) (d time.Duration, ok bool) {
	at, _ := slices.BinarySearchFunc(samples, end, func(s Sample, t time.Time) int { return s.Due.Compare(t) })
	var since time.Duration // the beginning of the normal seconds
	normal := 0
	for second := time.Duration(0); at < len(samples); second += time.Second {
		n, good := 0, 0
		for ; at < len(samples) && samples[at].Due.Before(end.Add(second+time.Second)); at++ {
			n++
			if samples[at].Late <= normalLateness {
				good++
			}
		}
		switch {
		case n == 0:
		case float64(good) < normalShare*float64(n):
			normal = 0
		default:
			if normal == 0 {
				since = second
			}
			if normal++; normal == normalFor {
				return since, true
			}
		}
	}
	return since, normal > 0
}

// Quantile returns the q-quantile of durations, which it sorts; 0 if there are none.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
