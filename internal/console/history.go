package console

import (
	"fmt"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
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
	At      time.Time
	Created float64 // a second: new orders and retries, not the hops from bucket to bucket
	Handled float64 // a second, by the closers, also of copies
	Waiting float64 // in all topics
	Overdue float64 // in seconds
}

// value returns the value of a line.
func (s sample) value(line int) float64 {
	return []float64{s.Created, s.Handled, s.Waiting, s.Overdue}[line]
}

// lineKeys are the names of the lines in the catalogue; charts are the lines that share a chart.
var (
	lineKeys = []string{"history.created", "history.handled", "waiting", "overdue"}
	charts   = [][]int{{0, 1}, {2}, {3}}
)

// reading is what one status says. Created and handled are totals since some time, of which only differences count. A hop from
// bucket to bucket changes created only for a moment.
type reading struct {
	at               time.Time
	created, handled int64
	waiting          int64
	overdue          float64
}

// history is the samples of the last hours, the oldest first.
type history struct {
	mu   sync.Mutex
	kept []reading
}

// add adds a status, unless a partition could not be read. It replaces the newest sample while that is less than sampleEvery
// after the one before it.
func (h *history) add(s backlog.Status, topics config.Topics) {
	one := reading{at: s.At}
	for _, t := range s.Topics {
		ends, closes := int64(0), t.Topic == topics.Close
		for _, p := range t.Partitions {
			if p.Problem != "" && p.End == 0 {
				return
			}
			ends, one.overdue = ends+p.End, max(one.overdue, p.Overdue)
		}
		switch one.waiting += t.Waiting; {
		case t.Problem != "":
			return
		case closes:
			one.handled += ends - t.Waiting
		default: // what came to wait is what still waits, and what has reached the close topic
			one.created += t.Waiting
		}
		if t.Topic == topics.Close {
			one.created += ends
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.kept)
	switch {
	case n > 0 && one.at.Sub(h.kept[n-1].at) < sampleGap:
		return
	case n > 1 && h.kept[n-1].at.Sub(h.kept[n-2].at) < sampleEvery:
		h.kept = h.kept[:n-1]
	}
	h.kept = append(h.kept[max(0, len(h.kept)+1-maxSamples):], one)
}

// samples returns what the readings say; nothing before there are two, because one has no rates. The first sample has the rates of the
// second.
func (h *history) samples() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) < 2 {
		return nil
	}
	samples := make([]sample, len(h.kept))
	for i, r := range h.kept {
		from, to := h.kept[max(0, i-1)], h.kept[max(1, i)]
		seconds := to.at.Sub(from.at).Seconds()
		samples[i] = sample{At: r.at, Created: float64(to.created-from.created) / seconds, Handled: float64(to.handled-from.handled) / seconds,
			Waiting: float64(r.waiting), Overdue: r.overdue}
	}
	return samples
}

// rates are how many of the first lines are per second. They are shown per minute: most shops have less than an order each second.
const rates = 2

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

// trends returns the charts of the history; none without samples.
func trends(samples []sample) (all []trend) {
	if len(samples) == 0 {
		return nil
	}
	first, last := samples[0].At, samples[len(samples)-1].At
	for _, lines := range charts {
		t, scale := trend{From: first, To: last}, 1.0
		if lines[0] < rates {
			scale, t.Most = 60, 1 // a line of less than one a minute is at the bottom
		}
		for _, l := range lines {
			for _, s := range samples {
				t.Most = max(t.Most, scale*s.value(l))
			}
		}
		for _, l := range lines {
			line := trendLine{Key: lineKeys[l]}
			for _, s := range samples {
				line.Last = max(0, scale*s.value(l))
				line.Points += fmt.Sprintf("%.0f,%.0f ", 1000*float64(s.At.Sub(first))/float64(last.Sub(first)), 100-100*line.Last/max(t.Most, 1e-9))
			}
			t.Lines = append(t.Lines, line)
		}
		all = append(all, t)
	}
	return all
}
