package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
)

// delaysData is what the page of delays shows.
type delaysData struct {
	Config     *config.Config
	Categories []categoryDelay // the last one is the default, without a name
	Topics     health.Answer[ops.TopicsPlan]
	Pauses     health.Answer[[]pausing.Pause]
	Broken     error      // of the present topics.yaml
	Form       url.Values // of a pause
	Problem    error      // of a form of a pause that was refused; nil: none was
}

// categoryDelay is the delay of a category.
type categoryDelay struct{ Name, Delay string }

func (c *Console) serveDelays(w http.ResponseWriter, r *http.Request) {
	c.renderDelays(w, r, http.StatusOK, delaysData{Form: url.Values{"for": {"30m"}}})
}

// renderDelays shows the page, with the fields of d that a form fills.
func (c *Console) renderDelays(w http.ResponseWriter, r *http.Request, status int, d delaysData) {
	cfg := c.o.Config()
	d.Config = cfg
	d.Topics = ops.Get(r.Context(), c.asks, ops.TopicsCheck)
	for _, name := range append(slices.Sorted(maps.Keys(cfg.Delays.ByCategory)), "") {
		_, delay, _ := cfg.Delays.Of(name)
		d.Categories = append(d.Categories, categoryDelay{name, config.FormatDuration(delay)})
	}
	d.Broken = ops.Get(r.Context(), c.asks, ops.ConfigCheck).Err
	d.Pauses = ops.Get(r.Context(), c.asks, ops.PausesCheck)
	p := c.newPage(r, "delays", d)
	p.Path = "/delays"
	c.render(w, r, status, p)
}
