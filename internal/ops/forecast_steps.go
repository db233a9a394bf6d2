package ops

import (
	"time"

	"github.com/orderclose/orderclose"
)

// MaxForecastSteps is the largest number of steps of a forecast.
const MaxForecastSteps = 24

const day = 24 * time.Hour

// stepLengths are step lengths that people can read easily.
var stepLengths = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// ForecastStepLength returns the length of a step so that at most MaxForecastSteps steps cover within.
func ForecastStepLength(within time.Duration) time.Duration {
	for _, s := range stepLengths {
		if within <= MaxForecastSteps*s {
			return s
		}
	}
	const longest = MaxForecastSteps * day
	return (within + longest - 1) / longest * day
}

// ForecastEdges returns the limits of steps of equal length, from 0 to at least within, which must
// be positive.
func ForecastEdges(within time.Duration) []time.Duration {
	step := ForecastStepLength(within)
	edges := []time.Duration{0}
	for ahead := time.Duration(0); ahead < within; {
		ahead += step
		edges = append(edges, ahead)
	}
	return edges
}

// ForecastWithin returns the default length of a forecast: a day, or the length of the largest
// bucket if that is shorter.
func ForecastWithin(buckets orderclose.Buckets) time.Duration {
	return min(day, buckets[len(buckets)-1].Length)
}

// newBucketForecast returns a forecast of a bucket without records.
func newBucketForecast(b orderclose.Bucket, edges []time.Time) BucketForecast {
	f := BucketForecast{Topic: b.Topic, Length: orderclose.ShortDuration(b.Length), Steps: make([]ForecastStep, len(edges)-1)}
	for i := range f.Steps {
		f.Steps[i] = ForecastStep{From: edges[i], To: edges[i+1]}
	}
	return f
}

// count counts the waiting records in [first, end) of a partition. offsets has, for each
// edge, the offset of the first record that leaves then or later. Every record is counted
// once, even if the offsets are not in order, as can happen if producers set the timestamps.
func (f *BucketForecast) count(first, end int64, offsets []int64) {
	at := first
	upTo := func(offset int64) int64 {
		before := at
		at = min(max(at, offset), end)
		return at - before
	}
	f.Overdue += upTo(offsets[0])
	for i := range f.Steps {
		f.Steps[i].Records += upTo(offsets[i+1])
	}
	f.Later += end - at
}
