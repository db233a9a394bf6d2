package console

import (
	"fmt"
	"slices"
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

// historyLine is a line over the time of the history. Of a rate only the differences count. They are shown per minute: most shops have less than an
// order each second.
type historyLine struct {
	key  string // of its name in the catalogue
	rate bool
	of   func(reading) float64
}

// charts are the lines that share a chart. Created are new orders and retries, not the hops from bucket to bucket; handled is what the closers
// have settled, also copies; waiting is in all topics, and overdue in seconds.
var charts = [][]historyLine{
	{{"history.created", true, func(r reading) float64 { return float64(r.created) }},
		{"history.handled", true, func(r reading) float64 { return float64(r.handled) }}},
	{{"waiting", false, func(r reading) float64 { return float64(r.waiting) }}},
	{{"overdue", false, func(r reading) float64 { return r.overdue }}},
}

// reading is what one status says. Created and handled are totals since some time, of which only differences count. A hop from
// bucket to bucket changes created only for a moment.
type reading struct {
	at               time.Time
	created, handled int64
	waiting          int64
	overdue          float64
}

// history has the readings of the last hours, the oldest first.
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

// trends returns the charts of the history; none before there are two readings, because one has no rates.
func (h *history) trends() (all []trend) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) < 2 {
		return nil
	}
	first, last := h.kept[0].at, h.kept[len(h.kept)-1].at
	for _, lines := range charts {
		t, values := trend{From: first, To: last}, make([][]float64, len(lines))
		if lines[0].rate {
			t.Most = 1 // a line of less than one a minute is at the bottom
		}
		for i, l := range lines {
			values[i] = h.values(l)
			t.Most = max(t.Most, slices.Max(values[i]))
		}
		for i, l := range lines {
			line := trendLine{Key: l.key, Last: values[i][len(h.kept)-1]}
			for n, v := range values[i] {
				line.Points += fmt.Sprintf("%.0f,%.0f ", 1000*float64(h.kept[n].at.Sub(first))/float64(last.Sub(first)), 100-100*v/max(t.Most, 1e-9))
			}
			t.Lines = append(t.Lines, line)
		}
		all = append(all, t)
	}
	return all
}

// values returns the values of a line, none below 0. The first rate is that of the second reading.
func (h *history) values(l historyLine) (values []float64) {
	for i, r := range h.kept {
		v := l.of(r)
		if l.rate {
			from, to := h.kept[max(0, i-1)], h.kept[max(1, i)]
			v = (l.of(to) - l.of(from)) / to.at.Sub(from.at).Minutes()
		}
		values = append(values, max(0, v))
	}
	return values
}
