package console

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/ops"
)

// The chart of misses: the last week, in steps of six hours.
const (
	missesHorizon = 7 * 24 * time.Hour
	missesStep    = 6 * time.Hour
)

// sweepsData is what the page of sweeps shows.
type sweepsData struct {
	Sweeps   ops.Answer[ops.Sweeps]
	Chart    chart
	CanSweep bool
}

func (c *Console) sweepsData(r *http.Request) any {
	d := sweepsData{Sweeps: ops.AskSweeps.Get(r.Context(), c.asks), CanSweep: c.o.Sweep != nil}
	d.Chart = missesChart(d.Sweeps.Value, time.Now())
	return d
}

// missesChart returns the orders that sweeps closed by the time of the sweep and by why the pipeline had
// missed them.
func missesChart(s ops.Sweeps, now time.Time) chart {
	place := func(cause string) int { return slices.Index(compensator.Causes(), compensator.Cause(cause)) }
	c := chart{Key: "sweeps.chart", Layout: "01-02", Quiet: true, Series: slices.Sorted(maps.Keys(s.Causes))}
	slices.SortStableFunc(c.Series, func(a, b string) int { return place(a) - place(b) })
	begin := now.UTC().Truncate(missesStep).Add(missesStep - missesHorizon)
	for from := begin; from.Before(now); from = from.Add(missesStep) {
		to := from.Add(missesStep)
		b := c.add(from, to, func(i int) (n int64) {
			for _, sweep := range s.Sweeps {
				if !sweep.StartedAt.Before(from) && sweep.StartedAt.Before(to) {
					n += int64(sweep.Causes[c.Series[i]])
				}
			}
			return n
		})
		if len(c.Bars)%4 == 3 { // a day has four
			b.Label = from
		}
	}
	return c.placed()
}
