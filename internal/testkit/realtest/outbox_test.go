package realtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// closeMany creates overdue orders and closes them, so that as many events wait.
func (r *rig) closeMany(orders, batch int) {
	r.t.Helper()
	var closing sync.WaitGroup
	for first := 0; first < orders; first += batch {
		closing.Go(func() {
			var requests []orderclose.CloseRequest
			for i := range batch {
				due := time.Now().Add(-time.Second).Truncate(time.Millisecond)
				o := orderclose.Order{ID: fmt.Sprintf("many-%05d", first+i), CreatedAt: due, Due: due}
				if err := r.shop.Orders.CreateOrder(r.t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(i % skus), Quantity: 1}}); err != nil {
					r.t.Error(err)
				}
				requests = append(requests, orderclose.CloseRequest{OrderID: o.ID})
			}
			if _, err := r.store.CloseOrders(r.t.Context(), orderclose.PathTouch, requests); err != nil {
				r.t.Error(err)
			}
		})
	}
	closing.Wait()
}

// published waits until that many more events are published, or none is left.
func (r *rig) published(more int) {
	r.t.Helper()
	for begin, left := -1, 0; ; <-time.After(time.Millisecond) {
		if err := r.store.DB().QueryRowContext(r.t.Context(), "SELECT COUNT(*) FROM outbox_events").Scan(&left); err != nil {
			r.t.Fatal(err)
		}
		if begin = max(begin, left); left == 0 || begin-left >= more {
			return
		}
	}
}

// Two dispatchers are killed at random moments while thousands of events wait to be
// published in small batches, and more are added.
func TestReal_KillingADispatcherLosesNoEvent(t *testing.T) {
	eachDatabase(t, killingADispatcherLosesNoEvent)
}

func killingADispatcherLosesNoEvent(t *testing.T, servers config.Servers) {
	r := newRig(t, servers)
	r.disturbed = true
	r.configure("outbox: {batch: 2, in_flight: 3}\n")
	r.closeMany(3000, 100)
	r.start("relay", "closer", "compensator", "outbox-1", "outbox-2")
	played := make(chan struct{})
	go func() {
		defer close(played)
		r.play(8, 200, 8*time.Second)
	}()
	random := rand.New(rand.NewPCG(9, 9))
	for i := range 16 {
		part := fmt.Sprint("outbox-", 1+i%2)
		r.published(20) // it is publishing
		<-time.After(time.Duration(random.IntN(50)) * time.Millisecond)
		r.signal(part, syscall.SIGKILL)
		r.start(part)
	}
	<-played
	r.settle()
	r.drain()
	v := r.check()
	records := 0
	for p := range r.cfg.Partitions {
		_, end, err := r.kafka.Bounds(t.Context(), r.cfg.Topics.Events, p)
		if err != nil {
			t.Fatal(err)
		}
		records += int(end)
	}
	if v.Events != v.Closed() || v.Events < 3000 {
		t.Errorf("%d events of %d closed orders", v.Events, v.Closed())
	}
	t.Logf("%d records of %d events", records, v.Events)
}

// run release calls the service once for each order and SKU, or again with the same
// key after a kill.
func TestReal_AServiceGetsTheStockBack(t *testing.T) {
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
		<-time.After(50 * time.Millisecond) // simulates a slow service
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
	r := newRig(t, realServers(t))
	r.disturbed = true
	r.env = []string{config.EnvReleaseURL + "=" + service.URL + "/release", config.EnvReleaseToken + "=of tokens"}
	r.closeMany(600, 100)
	r.start("outbox", "release")
	for i := range 2 {
		for n := 0; n < 150*(i+1); <-time.After(10 * time.Millisecond) {
			mu.Lock()
			n = len(seen)
			mu.Unlock()
		}
		r.signal("release", syscall.SIGKILL)
		r.start("release")
	}
	r.drain()
	r.eventually(func() error {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		lag, err := r.kafka.WaitingIn(t.Context(), r.cfg.ReleaseGroup(), r.cfg.Topics.Events)
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
		if p.Quantity != 1 {
			t.Errorf("%+v", p)
		}
	}
}
