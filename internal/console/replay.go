package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
)

// The chart of the close topic: the last day in steps of half an hour.
const (
	replayHorizon = 24 * time.Hour
	replaySteps   = 48
)

// replayData is what the page of a replay shows.
type replayData struct {
	Appended known[ops.Appended]
	Chart    chart
	Form     url.Values // from, to, order and category
	Problem  error      // of a form that was refused; nil: none was
}

// serveReplay shows the records of the close topic over time, and a form for a window of it.
func (c *Console) serveReplay(w http.ResponseWriter, r *http.Request) {
	c.renderReplay(w, r, http.StatusOK, inUTC(r.URL.Query(), zoneOf(r)), nil)
}

// renderReplay shows the page with a filled form, and why it was refused.
func (c *Console) renderReplay(w http.ResponseWriter, r *http.Request, status int, form url.Values, problem error) {
	d := replayData{Appended: c.appended.get(r.Context(), c.ctx), Form: form, Problem: problem}
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
	c := chart{Key: "replay.chart", Series: []string{a.Topic}, Layout: "15:04"}
	for i, s := range a.Steps {
		b := bar{From: s.From, To: s.To, Sum: s.Records, Quiet: true, Parts: []barPart{{Name: a.Topic, Count: s.Records}}}
		if i%12 == 5 {
			b.Label = s.To
		}
		b.Chosen = !from.IsZero() && s.From.Before(to) && s.To.After(from)
		begin := s.From
		if from.Before(begin) && !to.After(begin) && !from.IsZero() {
			begin = from
		}
		b.Link = base + "/replay?" + url.Values{"from": {begin.Format(time.RFC3339)}, "to": {s.To.Format(time.RFC3339)}}.Encode()
		c.Bars = append(c.Bars, b)
	}
	return c.placed()
}
