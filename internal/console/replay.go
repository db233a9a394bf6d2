package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
)

// The chart of the close topic: the last day in steps of half an hour.
const (
	replayHorizon = 24 * time.Hour
	replaySteps   = 48
)

// replayData is what the page of a replay shows.
type replayData struct {
	Appended ops.Answer[ops.Appended]
	Chart    chart
	Form     url.Values // from, to, order and category
	Problem  error      // of a form that was refused; nil: none was
}

// serveReplay shows the records of the close topic over time, and a form for a window of it.
func (c *Console) serveReplay(w http.ResponseWriter, r *http.Request) {
	c.renderReplay(w, r, http.StatusOK, inUTC(r.URL.Query(), zoneOf(r)), nil)
}

// A replay is followed for followTime at most, with a look at the shared status each followEvery.
const (
	followTime  = 10 * time.Minute
	followEvery = 2 * time.Second
)

// replayOutcome is what became of the records that a replay sent.
type replayOutcome struct {
	At      time.Time `json:"at"`      // of Waiting
	Waiting int64     `json:"waiting"` // records in the replay topic, of all replays and redrives
	// Asked is set once nothing waits, and the database was asked about the orders of the replay again.
	Asked   bool   `json:"asked"`
	Closed  int64  `json:"closed"`   // orders that were closed since the plan was made
	ToClose int64  `json:"to_close"` // orders that would have been closed then
	Open    int64  `json:"open"`     // orders that would still be closed
	NotRead string `json:"not_read,omitempty"`
}

// followReplay tells how many records wait in the replay topic until none does, and then what became of
// the orders: it reads the window once more, as the plan did.
func (c *Console) followReplay(ctx context.Context, plan ops.ReplayPlan, database ops.ReplayDatabase, tell func(any)) {
	sent := time.Now()
	before := plan.Preview.Verdicts
	o := replayOutcome{Waiting: -1, ToClose: before[orderclose.Closed]}
	for {
		status := ops.AskStatus.Get(ctx, c.asks).Value
		for _, t := range status.Topics {
			if t.Topic == plan.Into && t.Problem == "" && status.At.After(sent) {
				o.At, o.Waiting = status.At, t.Waiting
			}
		}
		if tell(o); o.Waiting == 0 {
			break
		}
		if time.Since(sent) > followTime || !retry.Sleep(ctx, followEvery) {
			return
		}
	}
	if database != nil && plan.Preview.NotRead == "" { // otherwise the plan does not know what was open
		preview, err := ops.PreviewReplay(ctx, c.o.Kafka, plan, database, nil)
		if err != nil {
			o.NotRead = err.Error()
		} else if o.NotRead = preview.NotRead; o.NotRead == "" {
			o.Asked, o.Closed, o.Open = true, preview.Verdicts[orderclose.AlreadyClosed]-before[orderclose.AlreadyClosed], preview.Verdicts[orderclose.Closed]
		}
	}
	tell(o)
}

// renderReplay shows the page with a filled form, and why it was refused.
func (c *Console) renderReplay(w http.ResponseWriter, r *http.Request, status int, form url.Values, problem error) {
	d := replayData{Appended: c.appended.Get(r.Context()), Form: form, Problem: problem}
	to := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	for name, preset := range map[string]time.Time{"from": to.Add(-time.Hour), "to": to} {
		if _, err := moment(name, form.Get(name), false); err != nil && problem == nil {
			form.Set(name, preset.Format(time.RFC3339))
		}
	}
	if d.Appended.Known() {
		from, _ := moment("from", form.Get("from"), false) // without a window no bar stands out
		to, _ := moment("to", form.Get("to"), false)
		d.Chart = appendedChart(d.Appended.Value, from, to, c.o.Settings.BasePath)
	}
	p := c.newPage(r, "replay", d)
	p.Path = "/replay"
	c.render(w, r, status, p)
}

// appendedChart returns a chart in which the bars of the window stand out. A click on a bar chooses
// its time as the window; a click on a later bar extends the window up to it.
func appendedChart(a ops.Appended, from, to time.Time, base string) chart {
	c := chart{Key: "replay.chart", Series: []string{a.Topic}, Layout: "15:04", Quiet: true}
	for i, s := range a.Steps {
		b := c.add(s.From, s.To, func(int) int64 { return s.Records })
		if i%12 == 5 {
			b.Label = s.To
		}
		b.Chosen = !from.IsZero() && s.From.Before(to) && s.To.After(from)
		begin := s.From
		if from.Before(begin) && !to.After(begin) && !from.IsZero() {
			begin = from
		}
		b.Link = base + "/replay?" + url.Values{"from": {begin.Format(time.RFC3339)}, "to": {s.To.Format(time.RFC3339)}}.Encode()
	}
	return c.placed()
}
