package console

import (
	"net/http"
	"strings"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
)

// orderData is what the page of an order shows.
type orderData struct {
	ID      string
	Invalid string       // why the id cannot be one of an order
	History *ops.History // nil: nothing was searched
	// Delay says when the order would close if it was written now; nil: that is not known.
	Delay *ops.OrderDelay
	Never bool     // its due time means never
	Asked []string // the servers that were searched, by their key in the catalogue
}

// serveOrder shows the order whose id is in the form. The id stands in no URL, because proxies log
// URLs.
func (c *Console) serveOrder(w http.ResponseWriter, r *http.Request) {
	d, status := orderData{ID: strings.TrimSpace(r.PostFormValue("id"))}, http.StatusOK
	if err := orderclose.ValidateID(d.ID); err != nil {
		d.Invalid, status = err.Error(), http.StatusBadRequest
	} else {
		h, err := c.histories.Of(r.Context(), c.pipeline(), d.ID)
		if err != nil {
			w.Header().Set("Retry-After", "5")
			c.renderProblem(w, r, http.StatusServiceUnavailable, "error.busy", "")
			return
		}
		if d.History = &h; !h.Known() {
			status = http.StatusNotFound
		}
		if h.Database != nil && h.Database.Order != nil {
			d.Delay, d.Never = ops.ExplainOrder(c.o.Config().Delays, *h.Database.Order), orderclose.IsNever(h.Database.Order.Due)
		}
		if c.o.Store != nil {
			d.Asked = append(d.Asked, "server.database")
		}
		if c.o.Kafka != nil {
			d.Asked = append(d.Asked, "server.kafka")
		}
	}
	c.render(w, r, status, c.newPage(r, "order", d))
}
