package console

import (
	"net/http"
	"time"

	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/overdue"
)

// The chart of what compensators found: the last week, in steps of six hours.
const (
	foundHorizon = 7 * 24 * time.Hour
	foundStep    = 6 * time.Hour
)

// sweepsData is what the page of sweeps shows.
type sweepsData struct {
	Sweeps health.Answer[ops.Sweeps]
	Hours  health.Answer[ops.Hours]
	Chart  chart
}

func (c *Console) sweepsData(r *http.Request) any {
	d := sweepsData{Sweeps: ops.Get(r.Context(), c.asks, ops.SweepsCheck), Hours: ops.Get(r.Context(), c.asks, ops.HoursCheck)}
	d.Chart = foundChart(d.Hours.Value.Hours, time.Now())
	return d
}

// foundKinds are the parts of a bar, and their names are those of the metric.
var foundKinds = []struct {
	name string
	of   func(overdue.Counts) int64
}{
	{"missed", func(c overdue.Counts) int64 { return c.Missed }},
	{"after_pause", func(c overdue.Counts) int64 { return c.AfterPause }},
	{"after_failure", func(c overdue.Counts) int64 { return c.AfterFailure }},
	{"not_closed", func(c overdue.Counts) int64 { return c.NotClosed }},
}

// foundChart returns the orders that compensators found, by kind and by the begin of the compensation.
func foundChart(hours []overdue.Hour, now time.Time) chart {
	c := chart{Key: "sweeps.chart", Layout: "01-02", Quiet: true}
	for _, k := range foundKinds {
		c.Series = append(c.Series, k.name)
	}
	begin := now.UTC().Truncate(foundStep).Add(foundStep - foundHorizon)
	for from := begin; from.Before(now); from = from.Add(foundStep) {
		to := from.Add(foundStep)
		var counts overdue.Counts
		for _, h := range hours {
			if !h.Begin.Before(from) && h.Begin.Before(to) {
				counts.Add(h.Counts)
			}
		}
		b := c.add(from, to, func(i int) int64 { return foundKinds[i].of(counts) })
		if len(c.Bars)%4 == 3 { // a day has four
			b.Label = from
		}
	}
	return c.placed()
}
