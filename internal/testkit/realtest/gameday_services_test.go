package realtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
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
			if err != nil {
				g.t.Fatal(err)
			}
			proxy, url := g.service(closes)
			g.configure(fmt.Sprintf("closer: {http: {url: %q}}\n", url))
			g.env = append(g.env, config.EnvHTTPSecret+"="+serviceSecret)
			g.begin("relay", "closer")
			unreachable(proxy)
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
			if err != nil {
				g.t.Fatal(err)
			}
			_, url := g.service(closes)
			g.configure(fmt.Sprintf("closer: {http: {url: %q}}\n", url))
			g.rewrite("period: 5s", "period: 1d") // a sweep would close what the replays close
			g.env = append(g.env, config.EnvHTTPSecret+"="+serviceSecret)
			g.mayAct()
			g.watch()
			g.console = "ann:" + consolePassword + "@" + g.console
			g.begin("relay", "closer", "compensator") // which counts the overdue orders
			g.place("acknowledged", 40, time.Second)
			g.told(ops.OrdersOverdue)
			g.named(ops.OrdersOverdue, func(all []ops.Problem) bool {
				return slices.ContainsFunc(all, func(p ops.Problem) bool {
					return strings.Contains(p.Detail, "a member of the closers' group has acknowledged the one in ")
				})
			})
			g.fires(g.alerts...)
			g.look(g.alerts...)
			lies.Store(false) // somebody repairs the service
			g.repaired()
			g.first("orders-are-overdue-in-the-database")
			g.first("replaying-the-close-topic")
			out, code := g.do("orderclose replay --from 1h --yes")
			if code != 0 {
				g.t.Errorf("replay exits with %d: %s", code, out)
			}
			g.allClosed()
			g.until("status finds nothing", func() bool { _, code := g.do("orderclose status"); return code == 0 })
			g.resolves(g.alerts...)
			lies.Store(true)
			from := time.Now()
			g.place("again", 40, time.Second)
			g.told(ops.OrdersOverdue)
			lies.Store(false)
			g.replayed(from, 40)
			g.allClosed()
			g.until("status finds nothing", func() bool { _, code := g.do("orderclose status"); return code == 0 })
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
			g.env = append(g.env, config.EnvPaymentSecret+"="+serviceSecret)
			g.begin("relay", "closer")
			unreachable(proxy)
			g.place("pending", 20, time.Second)
			g.fires(g.alerts...)
			g.words = append(g.words, "ORDER-ID", "pending-0")
			g.look(g.alerts...)
			proxy.Heal() // somebody repairs it
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "alerts are refused",
		alerts: []string{"OrdercloseAlertsNotSent"},
		play: func(g *game) {
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Header.Get("Authorization") != "new" {
					w.WriteHeader(http.StatusUnauthorized)
				}
			}))
			g.t.Cleanup(provider.Close)
			dir := filepath.Dir(g.file)
			write := func(name, text string) { must.Do(g.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
			write("token", "old")
			write("notify.yaml", fmt.Sprintf("receivers: {sms: {http: {url: %q, secret_file: token, headers: {Authorization: '{{ .Secret }}'}, body: '{{ .Text }}'}}}",
				provider.URL))
			g.launch("notify", must.Get(notifyBinary())(g.t)+" --notify-config notify.yaml")
			g.begin()
			post := func() {
				_, err := http.Post("http://"+g.addresses["notify"]+"/alert/sms", "application/json",
					strings.NewReader(`{"status":"firing","alerts":[{"status":"firing"}]}`))
				if err != nil {
					g.t.Error(err)
				}
			}
			post()
			g.fires(g.alerts...)
			write("token", "new") // the provider gave another
			post()
			g.resolves(g.alerts...)
		},
	},
}

// consolePassword is that of ann, who may act.
const consolePassword = "let-ann-act"

// mayAct makes ann an operator of the consoles that are started from here on.
func (g *game) mayAct() {
	g.t.Helper()
	file := filepath.Join(filepath.Dir(g.file), "web.yml")
	hash, err := bcrypt.GenerateFromPassword([]byte(consolePassword), bcrypt.MinCost)
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(nil, "basic_auth_users: {ann: %s}\n", hash), 0o600)
	}
	must.Do(g.t, err)
	g.env = append(g.env, config.EnvConsoleWebConfig+"="+file, config.EnvConsoleOperators+"=ann")
}

// replayed replays the close topic by the console, which says in the end that it has closed n orders. Until then what
// waits for the replay is not urgent.
func (g *game) replayed(from time.Time, n int64) {
	g.t.Helper()
	var plan struct {
		ID, State string
		Outcome   struct {
			Asked  bool
			Closed int64
		}
	}
	ask := func(method, path, body string) {
		req := must.Get(http.NewRequestWithContext(g.t.Context(), method, "http://"+g.console+path, strings.NewReader(body)))(g.t)
		req.Header.Set("Content-Type", "application/json")
		res := must.Get(http.DefaultClient.Do(req))(g.t)
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err == nil {
			err = json.Unmarshal(data, &plan)
		}
		must.That(g.t, err == nil && res.StatusCode < 300, "%s %s: %d %s, %v", method, path, res.StatusCode, data, err)
	}
	window := must.Get(json.Marshal(map[string]any{"kind": "replay", "fields": map[string][]string{
		"from": {from.UTC().Format(time.RFC3339Nano)}, "to": {time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}}}))(g.t)
	ask("POST", "/api/v1/plans", string(window))
	g.until("the replay is planned", func() bool { ask("GET", "/api/v1/plans/"+plan.ID, ""); return plan.State == "planned" })
	ask("POST", "/api/v1/plans/"+plan.ID+"/confirm", "")
	g.until("the console says what became of the replay", func() bool {
		var status struct{ Problems []ops.Problem }
		_, body := request(g.t, "GET", "http://"+g.console+"/api/v1/status")
		expect.NoError(g.t, json.Unmarshal([]byte(body), &status))
		for _, p := range status.Problems {
			if p.Severity == ops.Urgent && p.Kind != ops.OrdersOverdue {
				g.t.Errorf("during a replay: %+v", p)
			}
		}
		ask("GET", "/api/v1/plans/"+plan.ID, "")
		return plan.Outcome.Asked
	})
	if plan.Outcome.Closed != n {
		g.t.Errorf("the console says that the replay has closed %d orders, want %d", plan.Outcome.Closed, n)
	}
}

// service serves a service of the shop behind a proxy, and returns its URL.
func (g *game) service(handler http.Handler) (proxy *testkit.Proxy, url string) {
	g.t.Helper()
	server := httptest.NewServer(handler)
	g.t.Cleanup(server.Close)
	proxy = g.proxy(server.Listener.Addr().String())
	return proxy, "http://" + proxy.Addr() + "/"
}
