package simulation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/pipeline"
)

// serviceSecrets sign the requests to the shop's services.
var serviceSecrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

// service is a service of the shop that can be broken.
type service struct {
	calls atomic.Int64

	mu     sync.Mutex
	broken http.HandlerFunc // answers in place of the service; nil: the service works
}

// serve starts a service. The parts reach it under any address.
func (r *rig) serve(h http.Handler, err error) (s *service, stop func()) {
	r.t.Helper()
	must.Do(r.t, err)
	s = &service{}
	l := testkit.Listen()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.calls.Add(1)
		s.mu.Lock()
		broken := s.broken
		s.mu.Unlock()
		if broken != nil {
			broken(w, req)
			return
		}
		h.ServeHTTP(w, req)
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	r.services = l.Transport()
	return s, server.Close
}

func (s *service) setBroken(how http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = how
}

// hang reads the request and never answers.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only after that the server notices that the client disconnects
	<-r.Context().Done()
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func httpConfig() *config.Config {
	cfg := testConfig()
	cfg.Closer.Kind, cfg.Closer.HTTP.URL = config.KindHTTP, "http://shop/close"
	return cfg
}

// TestSimulation_AServiceThatIsDownCostsNoAttempt: however the service fails, orders wait for it, no order is given up, and all close when it is back.
func TestSimulation_AServiceThatIsDownCostsNoAttempt(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	ways := map[string]http.HandlerFunc{"hangs": hang, "500": status(500), "reset": reset}
	for _, name := range variants("hangs", "500", "reset") {
		t.Run(name, func(t *testing.T) {
			simulate(t, httpConfig(), func(ctx context.Context, r *rig) {
				r.disturbed = true
				var mu sync.Mutex
				attempts := 0
				s, stop := r.serve(httpclose.Handler(serviceSecrets, func(ctx context.Context, path orderclose.Path,
					requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
					mu.Lock()
					for _, q := range requests {
						attempts += q.Attempt
					}
					mu.Unlock()
					return r.db.CloseOrders(ctx, path, requests)
				}))
				defer stop()
				r.start(pipeline.Relay)
				r.start(pipeline.Closer)
				time.Sleep(10 * time.Second)
				for i := range 20 {
					r.order(fmt.Sprint("before-", i), "virtual", true)
				}
				time.Sleep(6 * time.Minute)
				if v := r.check(time.Now()); v.ByPath["pipeline"] != 20 || v.Quantile(1) > time.Second {
					t.Fatalf("closed %v, up to %v late, before anything was wrong", v.ByPath, v.Quantile(1))
				}
				s.setBroken(ways[name])
				for i := range 100 {
					r.order(fmt.Sprint("during-", i), "virtual", true)
				}
				s.calls.Store(0)
				time.Sleep(25 * time.Minute)
				calls := s.calls.Load()
				expect.That(t, calls != 0 && calls <= 7_000, "the service got %d requests in 20 minutes", calls)
				s.setBroken(nil)
				time.Sleep(time.Minute)
				if v := r.check(time.Now()); v.ByPath["pipeline"] != 120 || attempts != 0 {
					t.Errorf("a minute after it is back: closed %v with %d attempts used, want 120 and 0", v.ByPath, attempts)
				}
				dead := r.deadLetters(ctx)
				expect.That(t, len(dead) == 0, "dead letters %v", dead)
			})
		})
	}
}

// TestSimulation_ThePaymentProviderIsAskedBeforeTheClose: the pipeline and the sweep mark an order as paid if the provider says so, and close it if the
// provider says that it is unpaid. An order stays as it is while the provider does not know.
func TestSimulation_ThePaymentProviderIsAskedBeforeTheClose(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Closer.Payment.URL = "http://shop/payments"
	cfg.Compensator.Period = 5 * time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		var known atomic.Bool
		s, stop := r.serve(payment.Handler(serviceSecrets, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
			answers := make([]payment.Answer, len(ids))
			for i, id := range ids {
				switch {
				case strings.HasPrefix(id, "paid"):
					answers[i] = payment.Paid
				case strings.HasPrefix(id, "unpaid") || known.Load():
					answers[i] = payment.Unpaid
				default:
					answers[i] = payment.Unknown
				}
			}
			return answers, nil
		})))
		defer stop()
		r.startStable()
		for _, id := range []string{"paid", "unpaid"} {
			r.order(id, "virtual", true)
			r.order(id+" and forgotten", "virtual", false)
		}
		r.order("unknown", "virtual", false)
		r.order("unknown, published", "virtual", true)
		time.Sleep(15 * time.Minute)
		for id, want := range map[string]store.Status{
			"paid": store.Paid, "paid and forgotten": store.Paid,
			"unpaid": store.Closed, "unpaid and forgotten": store.Closed, "unknown": store.Unpaid,
		} {
			expect.Equal(t, r.status(id), want, "%s: status", id)
		}
		s.setBroken(hang)
		time.Sleep(10 * time.Minute)
		expect.Equal(t, r.status("unknown"), store.Unpaid, "with a provider that hangs: status")
		s.setBroken(nil)
		known.Store(true)
		time.Sleep(10 * time.Minute)
		for _, id := range []string{"unknown", "unknown, published"} {
			expect.Equal(t, r.status(id), store.Closed, "%s: status once the provider knows", id)
		}
		time.Sleep(10 * time.Minute) // until the record has been retried
		dead := r.deadLetters(ctx)
		expect.That(t, len(dead) == 0, "dead letters %v", dead)
	})
}

// cashier is a provider that can cancel. Each order has one payment, which is open until it is paid or cancelled.
type cashier struct {
	mu      sync.Mutex
	ended   map[string]payment.Answer // by order: Paid or Cancelled
	unknown map[string]bool           // orders that it does not know yet
	late    map[string]bool           // orders with a second payment, which was opened and paid after the close
}

func newCashier() *cashier {
	return &cashier{ended: map[string]payment.Answer{}, unknown: map[string]bool{}, late: map[string]bool{}}
}

// Ask implements payment.Provider. It is called after the close only.
func (c *cashier) Ask(_ context.Context, ids []string) ([]payment.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		switch {
		case c.ended[id] == "":
			return nil, fmt.Errorf("%s: asked instead of cancelling", id)
		case c.unknown[id]:
			answers[i] = payment.Unknown
		case c.late[id]:
			answers[i] = payment.Paid
		default:
			answers[i] = c.ended[id]
		}
	}
	return answers, nil
}

// payLate lets a payment succeed that the shop opened after the close of its order.
func (c *cashier) payLate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late[id] = true
}

func (c *cashier) setUnknown(id string, unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown[id] = unknown
}

// Cancel implements payment.Canceler.
func (c *cashier) Cancel(_ context.Context, ids []string) ([]payment.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		if c.unknown[id] {
			answers[i] = payment.Unknown
			continue
		}
		if c.ended[id] == "" {
			c.ended[id] = payment.Cancelled
		}
		answers[i] = c.ended[id]
	}
	return answers, nil
}

// pay reports whether a payment of the order succeeds now.
func (c *cashier) pay(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended[id] == "" {
		c.ended[id] = payment.Paid
	}
	return c.ended[id] == payment.Paid
}

// TestSimulation_MoneyThatArrivesAfterTheCloseIsALatePayment: without any callback, the questions after the close find the payment of each order, once,
// and only of closed orders. The provider does not know an order at first, and is down for a while, and for a while no compensator runs.
func TestSimulation_MoneyThatArrivesAfterTheCloseIsALatePayment(t *testing.T) {
	ring.NotShort(t)
	cfg := testConfig()
	cfg.Closer.Payment.URL, cfg.Closer.Payment.Cancel = "http://shop/payments", true
	cfg.Closer.Payment.Recheck = []time.Duration{3 * time.Minute, 8 * time.Minute, 15 * time.Minute}
	cfg.Compensator.Period = 14 * time.Minute
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		provider := newCashier()
		s, stop := r.serve(payment.Handler(serviceSecrets, provider))
		defer stop()
		r.startStable()
		for _, id := range []string{"soon", "unknown", "later", "last", "known", "never"} {
			r.order(id, "virtual", true)
		}
		r.order("swept", "virtual", false)
		r.order("paid in time", "virtual", true)
		provider.pay("paid in time")
		time.Sleep(8 * time.Minute) // the orders were closed three minutes ago
		closed := time.Now().Add(-3 * time.Minute)
		until := func(d time.Duration) { time.Sleep(time.Until(closed.Add(d))) }
		for _, id := range []string{"soon", "unknown", "known"} {
			provider.payLate(id)
		}
		provider.setUnknown("unknown", true)
		n, err := r.db.RecordLate(ctx, []store.LatePayment{{OrderID: "known", PaymentID: "p-1", Source: store.SourceCallback}})
		must.That(t, n == 1 && err == nil, "%d late payments by a callback, %v", n, err)
		late := func(when, want string) {
			t.Helper()
			got := r.texts("SELECT order_id || ' ' || payment_id || ' ' || source FROM late_payments ORDER BY order_id")
			expect.Equal(t, strings.Join(got, ", "), want, "%s: late payments", when)
		}
		until(4 * time.Minute)
		late("after the first question", "known p-1 callback, soon  recheck")
		provider.setUnknown("unknown", false)
		provider.payLate("later")
		provider.payLate("swept")
		r.stop(pipeline.Compensator)
		until(9 * time.Minute)
		late("without a compensator", "known p-1 callback, soon  recheck")
		r.start(pipeline.Compensator)
		until(10 * time.Minute)
		late("after the second question", "known p-1 callback, later  recheck, soon  recheck, swept  recheck, unknown  recheck")
		provider.payLate("last")
		s.setBroken(hang)
		until(18 * time.Minute)
		late("while the provider is down", "known p-1 callback, later  recheck, soon  recheck, swept  recheck, unknown  recheck")
		s.setBroken(nil)
		until(21 * time.Minute)
		late("after the third question", "known p-1 callback, last  recheck, later  recheck, soon  recheck, swept  recheck, unknown  recheck")
		expect.Equal(t, r.status("paid in time"), store.Paid, "the status of the order that was paid in time")
	})
}

func (r *rig) status(id string) (st store.Status) {
	r.t.Helper()
	must.Do(r.t, r.world.DB().QueryRowContext(r.t.Context(), "SELECT status FROM orders WHERE id = ?", id).Scan(&st))
	return st
}

// TestSimulation_AProcessWhoseStoreIsDeafIsRestarted: each call that does not return keeps a worker for
// good. The process ends before all workers are gone, and the next one closes the orders.
func TestSimulation_AProcessWhoseStoreIsDeafIsRestarted(t *testing.T) {
	ring.NotShort(t)
	simulate(t, testConfig(), func(_ context.Context, r *rig) {
		var deaf atomic.Bool // the store hangs for good on an order, and ignores its context
		deaf.Store(true)
		release, hangs := make(chan struct{}), make(chan string, 100)
		defer close(release)
		r.disturbed, r.onHang = true, func(why string) { hangs <- why }
		r.store = hookedStore{r.db, func(_ context.Context, requests []orderclose.CloseRequest) error {
			if !deaf.Load() || !testkit.Asks(requests[:1], "deaf") {
				return nil
			}
			<-release
			return orderclose.ErrUnavailable
		}}
		r.start(pipeline.Relay)
		r.start(pipeline.Closer)
		time.Sleep(10 * time.Second)
		for i := range 4 {
			r.order(fmt.Sprint("deaf-", i), "virtual", true)
		}
		time.Sleep(10 * time.Second)
		for i := range 200 {
			r.order(fmt.Sprint("good-", i), "virtual", true)
			time.Sleep(5 * time.Second)
			select {
			case <-hangs: // what a supervisor does
				r.stop(pipeline.Closer)
				deaf.Store(false)
				r.start(pipeline.Closer)
			default:
			}
		}
		expect.That(t, !deaf.Load(), "OnHang was not called")
		time.Sleep(6 * time.Minute)
		v := r.check(time.Now())
		expect.That(t, v.ByPath["pipeline"] == 204, "closed %v, want all 204", v.ByPath)
	})
}
