package realtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func init() {
	placements["TestReal_AServiceGetsTheStockBack"] = placement{in: nowhere, on: onMariaDB, alone: "TestSimulation_ClosedOrdersAreReleasedToTheWarehouse"}
	serviceIncidents = append(serviceIncidents, incident{
		name:   "the stock service refuses",
		alerts: []string{"OrdercloseStockReleaseFails"},
		play: func(g *game) {
			var refuses atomic.Bool
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if refuses.Load() {
					w.WriteHeader(http.StatusForbidden)
				}
			}))
			g.t.Cleanup(service.Close)
			g.env = append(g.env, "ORDERCLOSE_RELEASE_URL"+"="+service.URL)
			g.begin("relay", "closer", "outbox", "release")
			refuses.Store(true)
			stop := g.flow("sold", 1)
			g.fires(g.alerts...)
			stop()
			g.look(g.alerts...)
			refuses.Store(false) // somebody repairs it
			g.allClosed()
			g.act("orderclose dlq redrive --stage release --yes", g.alerts...)
			g.resolves(g.alerts...)
		},
	})
}

// run release calls the service once for each order and SKU, or again with the same
// key after a kill.
func TestReal_AServiceGetsTheStockBack(t *testing.T) {
	servers := realServers(t)
	t.Parallel()
	type posted struct {
		OrderID  string `json:"order_id"`
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
		Key      string `json:"idempotency_key"`
	}
	var mu sync.Mutex
	seen, repeats := map[string]posted{}, 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		var p posted
		scenario.Pause(req.Context(), 50*time.Millisecond) // a slow service
		mu.Lock()
		defer mu.Unlock()
		if err := json.Unmarshal(data, &p); err != nil || req.Header.Get("Idempotency-Key") != p.Key || req.Header.Get("Authorization") != "Bearer of tokens" {
			t.Errorf("%v %s: %v", req.Header, data, err)
		}
		if old, again := seen[p.Key]; again {
			if repeats++; old != p {
				t.Errorf("key %s for %+v and %+v", p.Key, old, p)
			}
			w.WriteHeader(http.StatusConflict)
			return
		}
		seen[p.Key] = p
	}))
	defer service.Close()
	r := newRig(t, servers)
	r.disturbed = true
	r.env = []string{"ORDERCLOSE_RELEASE_URL" + "=" + service.URL + "/release", "ORDERCLOSE_RELEASE_TOKEN" + "=of tokens"}
	r.closeMany(600, 100)
	r.start("outbox", "release")
	for i := range 2 {
		r.eventually(func() error {
			mu.Lock()
			defer mu.Unlock()
			return atLeast("releases", len(seen), 150*(i+1))
		})
		r.signal("release", syscall.SIGKILL)
		r.start("release")
	}
	r.drain()
	r.eventually(func() error {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		lag, err := r.kafka.WaitingIn(t.Context(), r.cfg.Group("release", r.cfg.Topics.Events), r.cfg.Topics.Events)
		if n != 600 || lag != 0 || err != nil {
			return fmt.Errorf("%d releases of 600, %d events not committed, %w", n, lag, err)
		}
		return nil
	})
	r.check()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d repeats", repeats)
	for _, p := range seen {
		expect.Equal(t, p.Quantity, 1, "%+v", p)
	}
}
