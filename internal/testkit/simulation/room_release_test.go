package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// released is the body of a request that gives stock back.
type released struct {
	OrderID  string `json:"order_id"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"idempotency_key"`
	EventID  string `json:"event_id"`
}

// warehouse is a service that keeps stock, and fails at random.
type warehouse struct {
	mu     sync.Mutex
	random *rand.Rand
	taken  map[string]released // by key
	calls  int
}

// RoundTrip implements http.RoundTripper.
func (w *warehouse) RoundTrip(r *http.Request) (*http.Response, error) {
	var q released
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: w.take(q), Body: http.NoBody, Request: r}, nil
}

// take returns the status of the answer.
func (w *warehouse) take(q released) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	old, seen := w.taken[q.Key]
	switch {
	case w.random.IntN(4) == 0:
		return http.StatusInternalServerError
	case seen && old != q: // the key belongs to another release
		return http.StatusUnprocessableEntity
	case seen:
		return http.StatusConflict
	}
	w.taken[q.Key] = q
	return http.StatusOK
}

// TestSimulation_ClosedOrdersAreReleasedToTheWarehouse: each SKU of each order once, although the
// worker is stopped at random and the warehouse fails at random.
func TestSimulation_ClosedOrdersAreReleasedToTheWarehouse(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Compensator.Period = 5 * time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		random := rand.New(rand.NewPCG(7, 7))
		w := &warehouse{random: rand.New(rand.NewPCG(8, 8)), taken: map[string]released{}}
		r.services, r.environment.Others = w, map[string]string{"ORDERCLOSE_RELEASE_URL": "http://127.0.0.1/release"}
		r.deadCauses = []string{"release_failed"} // four failures in a row happen here
		r.startAll()
		r.start("release")
		time.Sleep(10 * time.Second)
		steps := scenario.Plan(scenario.Spec{Seed: 6, Orders: 80, Over: time.Minute, Categories: []string{"virtual"}, SKUs: 20})
		must.Do(t, r.shop.Run(ctx, time.Now(), steps))
		for range 10 {
			time.Sleep(time.Duration(random.Int64N(int64(time.Minute))))
			r.stop("release")
			r.start("release")
		}
		time.Sleep(16 * time.Minute) // for the sweep of unpublished orders, and all retries
		r.check(time.Now())
		held := map[string]int64{}
		for _, row := range r.texts("SELECT order_id || ' ' || key || ' ' || value FROM receipts, json_each(returned)") {
			held[row]++
		}
		dead := r.deadLetters(ctx)["release_failed"]
		for _, q := range w.taken {
			row := fmt.Sprintf("%s %s %d", q.OrderID, q.SKU, q.Quantity)
			if held[row]--; held[row] < 0 {
				t.Errorf("released and not held: %s", row)
			}
		}
		missing := 0
		for _, n := range held {
			missing += int(n)
		}
		expect.That(t, missing <= dead && len(w.taken) >= 40 && w.calls != len(w.taken),
			"%d released by %d calls, %d missing, %d dead letters", len(w.taken), w.calls, missing, dead)
		lag, err := r.kafka.WaitingIn(ctx, r.cfg.Group("release", r.cfg.Topics.Events), r.cfg.Topics.Events)
		expect.That(t, err == nil && lag == 0, "%d events are not committed, %v", lag, err)
	})
}
