package console

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
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

// horizonNamed returns the horizon of a name, or the first.
func horizonNamed(name string) horizon {
	if i := slices.IndexFunc(horizons, func(h horizon) bool { return h.Name == name }); i >= 0 {
		return horizons[i]
	}
	return horizons[0]
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

// latenessHorizon is how far the lateness of each stage looks back.
const latenessHorizon = time.Hour

// nowData is what the page Now shows.
type nowData struct {
	Verdict  ops.Verdict
	Status   known[ops.Status]
	Database known[ops.OverdueOrders]
	Forecast known[ops.Forecast]
	Lateness known[ops.Lateness]
	Sweeps   known[ops.Sweeps]
	Pauses   []wire.Pause
	Letters  deadletters.CatalogState
	History  []sample
	Horizon  horizon // of the chart of what falls due
}

// Horizons returns those that a person can choose.
func (nowData) Horizons() []horizon { return horizons }

// Trends returns the charts of the last hours.
func (d nowData) Trends() []trend { return trends(d.History) }

// Due returns the chart of what falls due.
func (d nowData) Due() chart { return forecastChart(d.Forecast.Value, d.Horizon) }

// problemPages are the pages of the console that show more about a problem.
var problemPages = map[ops.ProblemKind]navigation{
	ops.ClosingPaused: {"delays", "/delays#pauses-heading"}, ops.PausesUnknown: {"delays", "/delays#pauses-heading"},
	ops.SweepFailed: {"sweeps", "/sweeps"}, ops.SweepMissing: {"sweeps", "/sweeps"}, ops.SweepFound: {"sweeps", "/sweeps"},
	ops.RecordsLost: {"sweeps", "/sweeps#losses-heading"}, ops.LettersPending: {"dead-letters", "/dead-letters"},
	ops.TopicUnread: {"delays", "/delays#drift-heading"}, ops.TopicsDiffer: {"delays", "/delays#drift-heading"}, ops.ConfigBroken: {"delays", "/delays"},
	ops.DelayFell: {"delays", "/delays#delay-changes-heading"},
}

// PageOf returns the page that shows more about a problem; nil: none does.
func (page) PageOf(kind ops.ProblemKind) *navigation {
	if n, ok := problemPages[kind]; ok {
		return &n
	}
	return nil
}

// LastSweep returns the newest sweep; nil if none is known.
func (d nowData) LastSweep() *wire.Sweep {
	if len(d.Sweeps.Value.Sweeps) == 0 {
		return nil
	}
	return &d.Sweeps.Value.Sweeps[0]
}

// now returns the data of the page. All fetches begin before the first is waited for.
func (c *Console) now(ctx context.Context) nowData {
	var d nowData
	var pauses known[[]wire.Pause]
	var topics known[ops.TopicsPlan]
	var broken, writes, lock known[struct{}]
	var offset known[time.Duration]
	var all sync.WaitGroup
	all.Go(func() { d.Status = c.status.get(ctx, c.ctx) })
	all.Go(func() { d.Forecast = c.forecast.get(ctx, c.ctx) })
	all.Go(func() { d.Database = c.database.get(ctx, c.ctx) })
	all.Go(func() { d.Lateness = c.lateness.get(ctx, c.ctx) })
	all.Go(func() { d.Sweeps = c.sweeps.get(ctx, c.ctx) })
	all.Go(func() { pauses = c.pauses.get(ctx, c.ctx) })
	all.Go(func() { topics = c.topics.get(ctx, c.ctx) })
	all.Go(func() { writes = c.writes.get(ctx, c.ctx) })
	all.Go(func() { lock = c.lock.get(ctx, c.ctx) })
	all.Go(func() { offset = c.offset.get(ctx, c.ctx) })
	all.Go(func() { broken = c.broken.get(ctx, c.ctx) })
	all.Wait()
	d.Pauses, d.History = pauses.Value, c.trend.samples()
	if c.letters != nil {
		d.Letters = c.letters.State()
	}
	f := ops.Facts{
		Status: d.Status.Value, Kafka: d.Status.fault(), Writes: writes.fault(), Lock: lock.fault(), DatabaseOffset: offset.Value, Pauses: pauses.Value, PausesErr: pauses.Err, Topics: topics.Value,
		ConfigBroken: broken.Err, Now: time.Now(), Sweeps: d.Sweeps.Value, SweepPeriod: c.o.Config().Compensator.Period, Lateness: d.Lateness.Value,
		DeadLetters: d.Letters.Pending.Total(), Overdue: d.Database.Value,
	}
	if c.o.Store != nil {
		f.Database = d.Database.fault()
	}
	d.Verdict = ops.Judge(f)
	c.first.mark(d.Verdict.Problems, f.Now)
	return d
}

// firstSeen remembers since when each kind of problem is there. It is safe for concurrent use.
type firstSeen struct {
	mu sync.Mutex
	at map[ops.ProblemKind]time.Time
}

// mark sets Since of the problems whose beginning nobody else knows: now, or the call since which each call
// had a problem of this kind.
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
		if p.Since.IsZero() {
			p.Since = at
		}
	}
}

func (c *Console) nowPage(r *http.Request) page {
	d := c.now(r.Context())
	d.Horizon = horizonNamed(r.URL.Query().Get("due"))
	p := c.newPage(r, "now", d)
	p.Live = nowInterval
	return p
}

func (c *Console) serveNow(w http.ResponseWriter, r *http.Request) {
	c.render(w, r, http.StatusOK, c.nowPage(r))
}
