package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/wire"
)

// delaysData is what the page of delays shows.
type delaysData struct {
	Config     *config.Config
	Categories []categoryDelay // the last one is the default, without a name
	Topics     ops.Answer[ops.TopicsPlan]
	Pauses     ops.Answer[[]wire.Pause]
	Broken     error       // of the present topics.yaml
	Asked      string      // the category in the calculator
	Answer     *delayRoute // nil: the calculator was not asked
	Form       url.Values  // of a pause
	Problem    error       // of a form of a pause that was refused; nil: none was
}

// categoryDelay is the delay of a category.
type categoryDelay struct{ Name, Delay string }

// delayRoute is the answer of the calculator: when an order that is made now is due, and through
// which topics its record goes.
type delayRoute struct {
	Category string
	Listed   bool // topics.yaml names the category
	Made     time.Time
	Due      time.Time
	Path     ops.DelayPlan // without hops if the order is never closed
	// Why says which rule decides, for an order without attributes.
	Why ops.DelayAnswer
}

// route returns the answer of the calculator for a category.
func route(cfg *config.Config, category string, now time.Time) delayRoute {
	now = now.Truncate(time.Millisecond) // due times are whole milliseconds
	why := ops.ExplainDelay(cfg.Delays, orderclose.Facts{CreatedAt: now, Categories: []string{category}})
	r := delayRoute{Category: category, Listed: len(why.Unknown) == 0, Made: now.UTC(), Due: why.Due, Why: why, Path: ops.DelayPlan{Hops: []ops.Hop{}}}
	if !why.Never {
		r.Path = ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, why.Due.Sub(now))
	}
	return r
}

func (c *Console) serveDelays(w http.ResponseWriter, r *http.Request) {
	d := delaysData{Form: url.Values{"for": {"30m"}}}
	if r.Method == http.MethodPost {
		d.Asked = r.PostFormValue("category")
		d.Answer = new(route(c.o.Config(), d.Asked, time.Now()))
	}
	c.renderDelays(w, r, http.StatusOK, d)
}

// renderDelays shows the page, with the fields of d that a form fills.
func (c *Console) renderDelays(w http.ResponseWriter, r *http.Request, status int, d delaysData) {
	cfg := c.o.Config()
	d.Config = cfg
	d.Topics = ops.AskTopics.Get(r.Context(), c.asks)
	for _, name := range append(slices.Sorted(maps.Keys(cfg.Delays.ByCategory)), "") {
		_, delay, _ := cfg.Delays.Of(name)
		d.Categories = append(d.Categories, categoryDelay{name, config.FormatDuration(delay)})
	}
	d.Broken = ops.AskConfig.Get(r.Context(), c.asks).Err
	d.Pauses = ops.AskPauses.Get(r.Context(), c.asks)
	p := c.newPage(r, "delays", d)
	p.Path = "/delays"
	c.render(w, r, status, p)
}
