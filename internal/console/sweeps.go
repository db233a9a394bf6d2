package console

import (
	"net/http"

	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/overdue"
)

// sweepsData is what the page of sweeps shows.
type sweepsData struct {
	Hours  health.Answer[ops.Hours]
	Server string         // which has them: a key of the catalogue
	Found  []overdue.Hour // the compensations that found orders or did not finish, newest first
}

func (c *Console) sweepsData(r *http.Request) any {
	d := sweepsData{Hours: ops.Get(r.Context(), c.asks, ops.HoursCheck), Server: "server.database"}
	if c.o.Kafka != nil && (c.o.Store == nil || c.o.OwnStore) {
		d.Server = "server.kafka"
	}
	for _, h := range d.Hours.Value.Hours {
		if h.Counts != (overdue.Counts{}) || h.State == overdue.Unfinished {
			d.Found = append(d.Found, h)
		}
	}
	return d
}
