package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/wire"
)

// horizon is how far the chart of what falls due looks ahead.
type horizon struct {
	Name   string // in the query of Now
	Key    string // in the catalogue
	within time.Duration
	step   time.Duration
}

// horizons are those that a person can choose. The first is shown without a choice.
var horizons = []horizon{
	{"10m", "now.due_minutes", 10 * time.Minute, time.Minute},
	{"6h", "now.due_hours", 6 * time.Hour, 30 * time.Minute},
	{"24h", "now.due_day", 24 * time.Hour, 2 * time.Hour},
}

// forecastEdges returns the limits of the steps of all horizons, each once. A step of a longer
// horizon consists of whole steps of the shorter ones.
func forecastEdges() []time.Duration {
	edges := []time.Duration{0}
	for _, h := range horizons {
		for at := h.step; at <= h.within; at += h.step {
			if at > edges[len(edges)-1] {
				edges = append(edges, at)
			}
		}
	}
	return edges
}

// nowData is what the page Now shows.
type nowData struct {
	Status   ops.Answer[ops.Status]
	Overdue  ops.Answer[ops.OverdueOrders]
	Pauses   []wire.Pause
	Hours    []overdue.Hour // of the compensations, newest first
	Verdict  ops.Verdict
	Forecast ops.Answer[ops.Forecast]
	History  []sample
	Past     *ops.Answer[[]sample] // of a Prometheus; nil: none is named
	Horizon  horizon               // of the chart of what falls due
}

// Horizons returns those that a person can choose.
func (nowData) Horizons() []horizon { return horizons }

// Trends returns the charts of the last hours.
func (d nowData) Trends() []trend { return trends(d.History) }

// Due returns the chart of what falls due.
func (d nowData) Due() chart { return forecastChart(d.Forecast.Value, d.Horizon) }

// TitleOf returns the title of the page at a path.
func (p page) TitleOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "#")
	return p.T(name + ".title")
}

func (c *Console) now(ctx context.Context) (d nowData) {
	var all sync.WaitGroup
	all.Go(func() { d.Forecast = c.forecast.Get(ctx) })
	all.Go(func() { d.Past = c.askPrometheus(ctx) })
	facts := c.asks.Facts(ctx)
	all.Wait()
	d.Status, d.Overdue = ops.AskStatus.Of(facts), ops.AskOverdue.Of(facts)
	d.Pauses, d.Hours = ops.AskPauses.Of(facts).Value, ops.AskHours.Of(facts).Value.Hours
	c.remember(d.Status)
	d.History, d.Verdict = c.lastHours(d.Past), ops.Judge(facts)
	c.first.mark(d.Verdict.Problems, facts.Now)
	return d
}

// remember adds a status that was just read to the history.
func (c *Console) remember(s ops.Answer[ops.Status]) {
	if s.Known() && !s.Away() {
		c.trend.add(s.Value, c.o.Config().Topics)
	}
}

// askPrometheus returns the last answer of the Prometheus; nil: none is named.
func (c *Console) askPrometheus(ctx context.Context) *ops.Answer[[]sample] {
	if c.past == nil {
		return nil
	}
	a := c.past.Get(ctx)
	return &a
}

// lastHours returns the history of the Prometheus, or the console's own if that does not answer or none is named.
func (c *Console) lastHours(past *ops.Answer[[]sample]) []sample {
	if past == nil || past.Away() {
		return c.trend.samples()
	}
	return past.Value
}

// firstSeen remembers since when each kind of problem is there. It is safe for concurrent use.
type firstSeen struct {
	mu sync.Mutex
	at map[ops.ProblemKind]time.Time
}

// mark sets Since of the problems: the call since which each call had a problem of this kind, if nobody knows
// an earlier moment.
func (f *firstSeen) mark(all []ops.Problem, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.at
	f.at = map[ops.ProblemKind]time.Time{}
	for i := range all {
		p := &all[i]
		at, seen := before[p.Kind]
		if !seen {
			at = now.UTC()
		}
		f.at[p.Kind] = at
		if p.Since.IsZero() || at.Before(p.Since) {
			p.Since = at
		}
	}
}

func (c *Console) nowPage(r *http.Request) page {
	d := c.now(r.Context())
	chosen := slices.IndexFunc(horizons, func(h horizon) bool { return h.Name == r.URL.Query().Get("due") })
	d.Horizon = horizons[max(0, chosen)]
	p := c.newPage(r, "now", d)
	p.Live = nowInterval
	return p
}

func (c *Console) serveNow(w http.ResponseWriter, r *http.Request) {
	c.render(w, r, http.StatusOK, c.nowPage(r))
}
