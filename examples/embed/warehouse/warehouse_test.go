package warehouse

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// faulty is a service whose first calls fail: an error, a call that hangs, and one whose answer is lost after the work was done. Later each
// twentieth answers 500.
type faulty struct {
	mu      sync.Mutex
	calls   int
	seen    map[string]bool
	stock   map[string]int64
	refused []Return
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var given Return
	if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.calls++
	call := f.calls
	f.mu.Unlock()
	switch call {
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case 2:
		<-r.Context().Done() // the caller gives up
		return
	}
	if call%20 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch key := r.Header.Get("Idempotency-Key"); {
	case given.SKU == "unknown":
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case f.seen[key]:
		w.WriteHeader(http.StatusConflict)
		return
	default:
		f.seen[key] = true
		f.stock[given.SKU] += given.Quantity
	}
	if call == 3 {
		panic(http.ErrAbortHandler) // done, and not answered
	}
}

func TestService_EachLineComesBackOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := pipeline.Parse("shop.yaml", []byte("delays: {default: 1s}\nbuckets: [1s]\npartitions: 1\n"))
	check(err)
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	check(err)
	defer servers.Close()
	app, err := servers.App(ctx, pipeline.Options{Config: cfg, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	p, err := servers.Producer(cfg)
	check(err)
	const orders = 200
	insert := func(query string, args ...any) {
		t.Helper()
		_, err := servers.DB().ExecContext(ctx, query, args...)
		check(err)
	}
	for _, sku := range []string{"card", "unknown"} {
		insert("INSERT INTO stock (sku_id, available, reserved) VALUES (?, 0, ?)", sku, 2*orders)
	}
	for i := range orders {
		o, sku := p.Order(fmt.Sprint("order-", i), time.Now()), "card"
		if i == 0 {
			sku = "unknown"
		}
		insert("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, '', 0, ?, ?, 1)", o.ID, o.CreatedAt.UnixMilli(),
			o.Due.UnixMilli())
		insert("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, 1, ?, 2)", o.ID, sku)
		check(p.Schedule(ctx, o))
	}

	f := &faulty{seen: map[string]bool{}, stock: map[string]int64{}}
	server := httptest.NewServer(f)
	defer server.Close()
	service := Service{URL: server.URL, Client: server.Client(), Logger: slog.New(slog.DiscardHandler)}
	service.Refused = func(_ context.Context, _ string, r Return, _ string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused = append(f.refused, r)
		return nil
	}
	handled := 0
	reading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(reading, pipeline.Relay, pipeline.Closer, pipeline.Outbox) }()
	err = eventreader.Read(reading, app, eventreader.Options[orderclose.OrderClosed]{Group: "warehouse",
		Handle: func(ctx context.Context, events []eventreader.Event[orderclose.OrderClosed]) error {
			err := service.Handle(ctx, events)
			if err == nil {
				if handled += len(events); handled == orders {
					stop()
				}
			}
			return err
		}})
	stop()
	check(err)
	check(<-ended)
	if f.stock["card"] != 2*(orders-1) || len(f.refused) != 1 || f.refused[0].SKU != "unknown" || f.calls < orders+3 || f.calls > orders+orders/4 {
		t.Errorf("after %d calls the service has %v, and refused %v", f.calls, f.stock, f.refused)
	}
}
