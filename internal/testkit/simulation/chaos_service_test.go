package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
)

// What the service of the shop does, in a world with events of the kind service.
const (
	closes = "closes orders" // over HTTP, in the world's store
	knows  = "knows payments"
	ends   = "cancels payments"
	inGo   = "is a store in Go" // a program's own, around the world's store
)

// shopAddress is the address of the service.
const shopAddress = "shop:80"

func init() {
	kinds["service"] = kind{weight: 6, draw: func(d *drawing, e *event) {
		e.How = d.among("hangs", "hangs", "slow", "500", "503", "429", "breaks off", "garbage", "error", "unavailable", "unknown", "panics")
		if d.plan.Service == inGo {
			e.How = d.among("hangs", "is deaf", "error", "unavailable", "panics", "panics")
		}
		if d.IntN(2) == 0 && e.How != "unavailable" {
			e.What = fmt.Sprintf("order-%02d", d.IntN(15)) // only for requests with this order
		}
		e.By = d.span(100*time.Millisecond, 8*time.Second)
		e.For = d.span(100*time.Millisecond, 40*time.Second)
	}, play: func(w *chaosWorld, e event) {
		w.service.change(func(s *shopService) { s.faults = append(s.faults, e) })
		w.hold(e)
		w.service.change(func(s *shopService) {
			at := slices.Index(s.faults, e)
			s.faults = slices.Delete(s.faults, at, at+1)
		})
	}}
}

// configure makes the configuration close orders through the service, or ask it for payments.
func (p *plan) configure(cfg *config.Config) {
	switch {
	case !p.has("service"):
	case p.Service == closes:
		cfg.Closer.Kind, cfg.Closer.HTTP.URL = config.KindHTTP, "http://"+shopAddress+"/close"
	case p.Service == knows:
		cfg.Closer.Payment.URL = "http://" + shopAddress + "/payments"
	case p.Service == ends:
		cfg.Closer.Payment.URL, cfg.Closer.Payment.Cancel = "http://"+shopAddress+"/payments", true
		cfg.Closer.Payment.Recheck = chaosRecheck
	}
}

// chaosRecheck are the steps of rechecks. The last is longer than the faults of a world last.
var chaosRecheck = []time.Duration{15 * time.Second, 2 * time.Minute}

// hiddenPayments counts the closed orders that were paid after the close, have no late payment, and are
// found by a recheck. While the database's clock is wrong, a close may have a time that is hours ahead.
func (w *chaosWorld) hiddenPayments() int64 {
	if !w.ends() || !w.plan.has("service") || !w.plan.Sweeps || w.plan.has("database-clock") {
		return 0
	}
	return w.number("SELECT COUNT(*) FROM orders WHERE status = 2 AND id LIKE '%3' AND id NOT IN (SELECT order_id FROM late_payments)")
}

// shopService is the service of the shop.
type shopService struct {
	store    *store.Store
	handler  http.Handler
	listener *testkit.Listener
	server   *http.Server
	done     chan struct{} // is closed when the service has stopped

	mu     sync.Mutex
	faults []event // that are active
	// Of a service that cancels payments. An order has one payment, which is open, paid or cancelled.
	paid, cancelled map[string]bool
}

// serveShop starts the service.
func (w *chaosWorld) serveShop() (err error) {
	s := &shopService{store: w.db, listener: testkit.Listen(), done: make(chan struct{}), paid: map[string]bool{}, cancelled: map[string]bool{}}
	if w.plan.Service == inGo {
		w.service = s
		return nil
	}
	switch w.plan.Service {
	case closes:
		s.handler, err = httpclose.Handler(serviceSecrets, s.closeOrders)
	case ends:
		s.handler, err = payment.Handler(serviceSecrets, canceler{payment.ProviderFunc(s.ask), w})
	default:
		s.handler, err = payment.Handler(serviceSecrets, payment.ProviderFunc(s.ask))
	}
	s.server = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	w.service = s
	go func() {
		defer close(s.done)
		_ = s.server.Serve(s.listener)
	}()
	return err
}

func (s *shopService) stop() {
	if s != nil && s.server != nil {
		_ = s.server.Close()
		<-s.done
	}
}

// dial opens a connection to the service.
func (s *shopService) dial(ctx context.Context, network string) (net.Conn, error) {
	return s.listener.Transport().DialContext(ctx, network, shopAddress)
}

func (s *shopService) change(do func(s *shopService)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s)
}

// now returns the active faults for requests that contain an order. contains reports whether a request contains the order.
func (s *shopService) now(contains func(order string) bool) (all []event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.faults {
		if e.What == "" || contains(e.What) {
			all = append(all, e)
		}
	}
	return all
}

// ServeHTTP implements http.Handler, and applies the active faults to the request.
func (s *shopService) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // only after that the server notices that a client disconnects
	if err != nil {
		return
	}
	for _, e := range s.now(func(order string) bool { return bytes.Contains(body, []byte(order)) }) {
		switch e.How {
		case "hangs":
			<-r.Context().Done()
			return
		case "slow":
			if !wait(r.Context(), e.By) {
				return
			}
		case "500", "503":
			rw.WriteHeader(map[string]int{"500": 500, "503": 503}[e.How])
			return
		case "429":
			rw.Header().Set("Retry-After", "5")
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		case "breaks off":
			panic(http.ErrAbortHandler)
		case "garbage":
			_, _ = rw.Write([]byte(`{"verdicts":`))
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.handler.ServeHTTP(rw, r)
}

// failing returns the error of an active fault, if any.
func (s *shopService) failing(ids []string) error {
	for _, e := range s.now(func(order string) bool { return slices.Contains(ids, order) }) {
		switch e.How {
		case "error":
			return errors.New("chaos: the service fails")
		case "unavailable":
			return fmt.Errorf("chaos: %w", orderclose.ErrUnavailable)
		case "panics":
			panic("chaos: code of the user panics")
		}
	}
	return nil
}

// before is the hook of a program's own store, with the faults of the service. Code that is deaf ignores its context.
func (s *shopService) before(ctx context.Context, requests []orderclose.CloseRequest) error {
	ids := idsOf(requests)
	for _, e := range s.now(func(order string) bool { return slices.Contains(ids, order) }) {
		switch e.How {
		case "is deaf":
			time.Sleep(e.By)
			return fmt.Errorf("chaos: %w", orderclose.ErrUnavailable)
		case "hangs":
			wait(ctx, e.By)
			return fmt.Errorf("chaos: %w", orderclose.ErrUnavailable)
		}
	}
	return s.failing(ids)
}

func idsOf(requests []orderclose.CloseRequest) (ids []string) {
	for _, r := range requests {
		ids = append(ids, r.OrderID)
	}
	return ids
}

// closeOrders closes orders in the world's store.
func (s *shopService) closeOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if err := s.failing(idsOf(requests)); err != nil {
		return nil, err
	}
	return s.store.CloseOrders(ctx, path, requests)
}

// ends reports whether the service of the world cancels payments.
func (w *chaosWorld) ends() bool { return w.service != nil && w.plan.Service == ends }

// canceler is the provider of a service that cancels payments.
type canceler struct {
	payment.Provider
	world *chaosWorld
}

// Ask answers for closed orders. The shop has opened a second payment of every tenth order after the close, and the customer has paid.
func (c canceler) Ask(ctx context.Context, ids []string) ([]payment.Answer, error) {
	answers, err := c.Provider.Ask(ctx, ids)
	s := c.world.service
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, answer := range answers {
		if answer == payment.Unpaid && strings.HasSuffix(ids[i], "3") && s.cancelled[ids[i]] {
			answers[i] = payment.Paid
		}
	}
	return answers, err
}

// Cancel cancels the payments that ask calls unpaid, unless the customer has paid.
func (c canceler) Cancel(ctx context.Context, ids []string) ([]payment.Answer, error) {
	answers, err := c.Provider.Ask(ctx, ids)
	if err != nil {
		return nil, err
	}
	closed := make([]int, len(ids)) // before the lock, because the query waits in the time of the world
	for i, id := range ids {
		if err := c.world.servers.DB().QueryRowContext(ctx, "SELECT COUNT(*) FROM orders WHERE status = 2 AND id = ?", id).Scan(&closed[i]); err != nil {
			closed[i] = 0 // the database has a fault
		}
	}
	s := c.world.service
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		switch {
		case answers[i] != payment.Unpaid:
		case s.paid[id]:
			answers[i] = payment.Paid
		default:
			if !s.cancelled[id] && closed[i] > 0 {
				c.world.violation("broken", "%s was closed before its payment was cancelled", id)
			}
			s.cancelled[id], answers[i] = true, payment.Cancelled
		}
	}
	return answers, nil
}

// pay reports whether the provider accepts the payment of an order now.
func (s *shopService) pay(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled[id] {
		return false
	}
	s.paid[id] = true
	return true
}

// ask answers, from the first question on, that every fifth order was paid.
func (s *shopService) ask(_ context.Context, ids []string) ([]payment.Answer, error) {
	if err := s.failing(ids); err != nil {
		return nil, err
	}
	unknown := func(id string) bool {
		return slices.ContainsFunc(s.now(func(order string) bool { return order == id }), func(e event) bool { return e.How == "unknown" })
	}
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		switch {
		case unknown(id):
			answers[i] = payment.Unknown
		case strings.HasSuffix(id, "0") || strings.HasSuffix(id, "5"):
			answers[i] = payment.Paid
		default:
			answers[i] = payment.Unpaid
		}
	}
	return answers, nil
}

// checkPayments requires that no order is closed that the payment provider reports as paid. If the
// service cancels payments, it requires that the payment of a closed order cannot succeed any more.
func (w *chaosWorld) checkPayments() {
	if w.service == nil || w.plan.Service != knows && w.plan.Service != ends {
		return
	}
	if n := w.hiddenPayments(); n > 0 {
		w.violation("broken", "%d orders are closed and paid, and have no late payment", n)
	}
	if n := w.number("SELECT COUNT(*) - COUNT(DISTINCT order_id) FROM late_payments WHERE source = 'recheck'"); n > 0 {
		w.violation("broken", "%d payments that a recheck has found have two late payments", n)
	}
	if w.ends() {
		for _, e := range w.plan.Events {
			id := fmt.Sprintf("order-%02d", e.N)
			if e.Kind == "order" && w.service.pay(id) && w.number("SELECT COUNT(*) FROM orders WHERE status = 2 AND id = '"+id+"'") > 0 {
				w.violation("broken", "%s is closed, and its payment succeeds afterwards", id)
			}
		}
	}
	if n := w.number("SELECT COUNT(*) FROM orders WHERE status = 2 AND (id LIKE '%0' OR id LIKE '%5')"); n > 0 {
		w.violation("broken", "%d orders are closed that the payment provider reports as paid", n)
	}
}
