package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
)

// nowData is what the page Now shows.
type nowData struct {
	Status  health.Answer[backlog.Status]
	Overdue health.Answer[backlog.OverdueOrders]
	Pauses  []pausing.Pause
	LastDay *ops.LastDay // of the compensations; nil: none is known
	Verdict health.Verdict
	Trends  []trend // the charts of the last hours
}

// TitleOf returns the title of the page at a path.
func (p page) TitleOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "#")
	return p.T(name + ".title")
}

func (c *Console) now(ctx context.Context) (d nowData) {
	facts := c.asks.Facts(ctx)
	d.Status, d.Overdue = health.KafkaCheck.Of(facts), ops.OverdueCheck.Of(facts)
	d.Pauses, d.LastDay = ops.PausesCheck.Of(facts).Value, ops.HoursCheck.Of(facts).Value.LastDay(facts.Now)
	c.remember(d.Status)
	d.Trends, d.Verdict = c.trend.trends(), health.Judge(facts)
	return d
}

// remember adds a status that was just read to the history.
func (c *Console) remember(s health.Answer[backlog.Status]) {
	if s.Known() && !s.Away() {
		c.trend.add(s.Value, c.o.Config().Topics)
	}
}

func (c *Console) serveNow(w http.ResponseWriter, r *http.Request) {
	c.render(w, r, http.StatusOK, c.newPage(r, "now", c.now(r.Context())))
}

// serveLive serves the part of the page Now that changes, for which an open page asks each 5 s.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request) {
	c.renderPart(w, r, http.StatusOK, c.newPage(r, "now", c.now(r.Context())), "live")
}
