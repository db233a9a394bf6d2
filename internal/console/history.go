package console

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

// The history on Now has a sample each minute, for four hours, from the statuses that pages need anyway. While
// no page is open, the console reads a status each sampleEvery.
const (
	sampleEvery = time.Minute
	sampleGap   = 5 * time.Second // a rate over a shorter time means nothing
	maxSamples  = 240
)

// sample is the state of the pipeline at one moment.
type sample struct {
	At time.Time `json:"at"`
	// Created and Handled are totals since some time, of which only differences count. Created has the
	// records of new orders and of retries: a hop from bucket to bucket changes it only for a moment.
	Created int64   `json:"created"`
	Handled int64   `json:"handled"` // by the closers, also of replays
	Waiting int64   `json:"waiting"` // in all topics
	Overdue float64 `json:"overdue_seconds"`
}

// history is the samples of the last hours, the oldest first.
type history struct {
	mu   sync.Mutex
	kept []sample
}

// add adds a status, unless a partition could not be read. It replaces the newest sample
// while that is less than sampleEvery after the one before it.
func (h *history) add(s ops.Status, topics config.Topics) {
	one := sample{At: s.At}
	for _, t := range s.Topics {
		ends, closes := int64(0), t.Topic == topics.Close || t.Topic == topics.Replay
		for _, p := range t.Partitions {
			if p.Problem != "" && p.End == 0 {
				return
			}
			ends, one.Overdue = ends+p.End, max(one.Overdue, p.Overdue)
		}
		switch one.Waiting += t.Waiting; {
		case t.Problem != "":
			return
		case closes:
			one.Handled += ends - t.Waiting
		default: // what came to wait is what still waits, and what has reached the close topic
			one.Created += t.Waiting
		}
		if t.Topic == topics.Close {
			one.Created += ends
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.kept)
	switch {
	case n > 0 && one.At.Sub(h.kept[n-1].At) < sampleGap:
		return
	case n > 1 && h.kept[n-1].At.Sub(h.kept[n-2].At) < sampleEvery:
		h.kept = h.kept[:n-1]
	}
	h.kept = append(h.kept[max(0, len(h.kept)+1-maxSamples):], one)
}

// samples returns a copy.
func (h *history) samples() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sample{}, h.kept...)
}

// trend is a small chart of lines over the time of the history.
type trend struct {
	From, To time.Time
	Most     float64
	Lines    []trendLine
}

// trendLine is one line in a box of 1000 × 100.
type trendLine struct {
	Key    string // of its name in the catalogue
	Last   float64
	Points string
}

// trends returns the charts of the history; none before there are two samples.
func trends(samples []sample) (all []trend) {
	if len(samples) < 2 {
		return nil
	}
	first, last := samples[0].At, samples[len(samples)-1].At
	var values [4][]float64 // by line
	for i, s := range samples {
		from, to := samples[max(0, i-1)], samples[max(1, i)] // the first sample has the rate of the second
		seconds := to.At.Sub(from.At).Seconds()
		for l, v := range []float64{float64(to.Created-from.Created) / seconds, float64(to.Handled-from.Handled) / seconds, float64(s.Waiting), s.Overdue} {
			values[l] = append(values[l], max(0, v))
		}
	}
	names := []string{"history.created", "history.handled", "waiting", "overdue"}
	for _, lines := range [][]int{{0, 1}, {2}, {3}} {
		t := trend{From: first, To: last, Most: slices.Max(values[lines[0]])}
		for _, l := range lines {
			t.Most = max(t.Most, slices.Max(values[l]))
		}
		for _, l := range lines {
			var points strings.Builder
			for i, v := range values[l] {
				fmt.Fprintf(&points, "%.0f,%.0f ", 1000*float64(samples[i].At.Sub(first))/float64(last.Sub(first)), 100-100*v/max(t.Most, 1e-9))
			}
			t.Lines = append(t.Lines, trendLine{names[l], values[l][len(values[l])-1], points.String()})
		}
		all = append(all, t)
	}
	return all
}
