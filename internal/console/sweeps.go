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
	Losses   []ops.Loss // those of records that waited
	Chart    chart
	CanSweep bool
}

func (c *Console) serveSweeps(w http.ResponseWriter, r *http.Request) {
	d := sweepsData{Sweeps: c.asks.Sweeps.Get(r.Context()), CanSweep: c.o.Sweep != nil}
	d.Losses = slices.DeleteFunc(slices.Clone(d.Sweeps.Value.Losses), func(l ops.Loss) bool { return l.Offsets == 0 })
	d.Chart = missesChart(d.Sweeps.Value, time.Now())
	c.render(w, r, http.StatusOK, c.newPage(r, "sweeps", d))
}

// missesChart returns the orders that sweeps closed by the time of the sweep and by why the pipeline had
// missed them.
func missesChart(s ops.Sweeps, now time.Time) chart {
	c := chart{Key: "sweeps.chart", Layout: "01-02"}
	named := slices.Sorted(maps.Keys(s.Causes))
	slices.SortStableFunc(named, func(a, b string) int { return slices.Index(causeNames(), a) - slices.Index(causeNames(), b) })
	c.Series = named
	begin := now.UTC().Truncate(missesStep).Add(missesStep - missesHorizon)
	for from := begin; from.Before(now); from = from.Add(missesStep) {
		b := bar{From: from, To: from.Add(missesStep), Quiet: true}
		for i, cause := range named {
			part := barPart{Series: i, Name: cause}
			for _, sweep := range s.Sweeps {
				if !sweep.StartedAt.Before(b.From) && sweep.StartedAt.Before(b.To) {
					part.Count += int64(sweep.Causes[cause])
				}
			}
			b.Sum += part.Count
			b.Parts = append(b.Parts, part)
		}
		if len(c.Bars)%4 == 2 { // a day has four
			b.Label = from
		}
		c.Bars = append(c.Bars, b)
	}
	return c.placed()
}

func causeNames() (names []string) {
	for _, c := range compensator.Causes() {
		names = append(names, string(c))
	}
	return names
}
