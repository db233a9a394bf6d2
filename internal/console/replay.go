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
	From, To time.Time // the window in the form
}

// serveReplay shows the records of the close topic over time, and a form for a window of it.
func (c *Console) serveReplay(w http.ResponseWriter, r *http.Request) {
	d := replayData{Appended: c.appended.get(r.Context(), c.ctx)}
	d.To = time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	d.From = d.To.Add(-time.Hour)
	if from, err := moment("from", r.URL.Query().Get("from"), false); err == nil {
		d.From = from
	}
	if to, err := moment("to", r.URL.Query().Get("to"), false); err == nil {
		d.To = to
	}
	if d.Appended.Known() {
		d.Chart = appendedChart(d.Appended.Value, d.From, d.To)
	}
	c.render(w, r, http.StatusOK, c.newPage(r, "replay", d))
}

// appendedChart returns a chart in which the bars of the window stand out. A click on a bar chooses
// its time as the window; a click on a later bar extends the window up to it.
func appendedChart(a ops.Appended, from, to time.Time) chart {
	c := chart{Key: "replay.chart", Series: []string{a.Topic}}
	for i, s := range a.Steps {
		b := bar{From: s.From, To: s.To, Sum: s.Records, Quiet: true, Parts: []barPart{{Name: a.Topic, Count: s.Records}}}
		if i%12 == 5 {
			b.Label = s.To.UTC().Format("15:04")
		}
		if s.From.Before(to) && s.To.After(from) {
			b.Chosen = true
		}
		begin := s.From
		if from.Before(begin) && !to.After(begin) {
			begin = from
		}
		b.Link = "?" + url.Values{"from": {begin.Format(time.RFC3339)}, "to": {s.To.Format(time.RFC3339)}}.Encode()
		c.Bars = append(c.Bars, b)
	}
	return c.placed()
}
