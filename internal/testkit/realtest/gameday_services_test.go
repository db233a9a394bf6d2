package realtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// serviceIncidents are those in which a service of the shop, or a provider, fails.
var serviceIncidents = []incident{
	{
		name:   "the service that closes is down",
		alerts: []string{"OrdercloseServiceDoesNotAnswer"},
		play: func(g *game) {
			closes, err := httpclose.Handler([]string{serviceSecret}, func(ctx context.Context, path orderclose.Path,
				requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
				return g.store.CloseOrders(ctx, path, requests)
			})
			must.Do(g.t, err)
			proxy, url := g.service(closes)
			g.configure(fmt.Sprintf("closer: {http: {url: %q}}\n", url))
			g.env = append(g.env, environ.EnvHTTPSecret+"="+serviceSecret)
			g.begin("relay", "closer")
			proxy.Disconnect()
			g.place("waiting", 20, time.Second)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			proxy.Heal() // somebody starts it again
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "a closer acknowledges without closing",
		alerts: []string{"OrdercloseOrdersOverdue"},
		play: func(g *game) {
			var lies atomic.Bool
			lies.Store(true)
			closes, err := httpclose.Handler([]string{serviceSecret}, func(ctx context.Context, path orderclose.Path,
				requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
				if !lies.Load() {
					return g.store.CloseOrders(ctx, path, requests)
				}
				out := make([]orderclose.Outcome, len(requests))
				for i, r := range requests {
					out[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.AlreadyClosed}
				}
				return out, nil
			})
			must.Do(g.t, err)
			_, url := g.service(closes)
			g.configure(fmt.Sprintf("closer: {http: {url: %q}}\n", url))
			g.rewrite("period: 5s", "period: 1d") // a sweep would close what the replays close
			g.env = append(g.env, environ.EnvHTTPSecret+"="+serviceSecret)
			g.watch()
			g.begin("relay", "closer", "compensator") // which counts the overdue orders
			g.place("acknowledged", 40, time.Second)
			g.told(health.OrdersOverdue)
			g.until("the history of an order says what has become of its record", func() bool {
				out, _ := g.do("orderclose order acknowledged-0")
				return strings.Contains(out, "a member of the closers' group has acknowledged the one in ")
			})
			g.fires(g.alerts...)
			g.look(g.alerts...)
			lies.Store(false) // somebody repairs the service
			g.repaired()
			g.first("orders-are-overdue-in-the-database")
			g.first("replaying-the-close-topic")
			out, code := g.do("orderclose replay --from 1h --yes")
			expect.That(g.t, code == 0, "replay exits with %d: %s", code, out)
			g.allClosed()
			g.until("status finds nothing", func() bool { _, code := g.do("orderclose status"); return code == 0 })
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "the payment provider is down",
		alerts: []string{"OrderclosePaymentProviderDoesNotAnswer"},
		play: func(g *game) {
			answers := must.Get(payment.Handler([]string{serviceSecret}, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
				all := make([]payment.Answer, len(ids))
				for i := range all {
					all[i] = payment.Unpaid
				}
				return all, nil
			})))(g.t)
			proxy, url := g.service(answers)
			g.configure(fmt.Sprintf("closer: {payment: {url: %q}}\n", url))
			g.env = append(g.env, environ.EnvPaymentSecret+"="+serviceSecret)
			g.begin("relay", "closer")
			proxy.Disconnect()
			g.place("pending", 20, time.Second)
			g.fires(g.alerts...)
			g.words = append(g.words, "ORDER-ID", "pending-0")
			g.look(g.alerts...)
			proxy.Heal() // somebody repairs it
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
}

// service serves a service of the shop behind a proxy, and returns its URL.
func (g *game) service(handler http.Handler) (proxy *testkit.Proxy, url string) {
	g.t.Helper()
	server := httptest.NewServer(handler)
	g.t.Cleanup(server.Close)
	proxy = g.proxy(server.Listener.Addr().String())
	return proxy, "http://" + proxy.Addr() + "/"
}
