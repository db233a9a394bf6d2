package pipeline

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// The log of the closer and of the loop has the errors. One order on which a service fails says nothing about the others.
func TestReady_NotWhileEveryCloseFails(t *testing.T) {
	for _, c := range []struct {
		fails []string // ids
		ready bool
	}{{[]string{"a", "b", "c"}, false}, {[]string{"a"}, true}, {nil, true}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config.Default()
			cfg.Closer.Kind = config.KindHTTP
			cfg.Closer.HTTP.URL = "http://shop.test/close"
			a := must.Get(New(Options{
				Config:  cfg,
				Secrets: Secrets{HTTP: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
				Services: transport(func(r *http.Request) (*http.Response, error) {
					body := must.Get(io.ReadAll(r.Body))(t)
					for _, id := range c.fails {
						if strings.Contains(string(body), `"`+id+`"`) {
							return nil, errors.New("connection refused")
						}
					}
					return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(`{"verdicts":[{"order_id":"a","verdict":"already_closed"}]}`))}, nil
				}),
			}))(t)
			a.ready.waiting.remove(needRun)
			method := must.Get(a.closeMethodOnce())(t)
			call := func() {
				for _, id := range cmp.Or(strings.Join(c.fails, ""), "a") {
					_, _ = method.store.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: string(id)}})
				}
			}
			call()
			expect.Equal(t, len(a.Ready()), 0, "what is waited for after one failure of %v", c.fails)
			time.Sleep(failingFor)
			call()
			waits := strings.Join(a.Ready(), "\n")
			if c.ready {
				expect.Equal(t, waits, "", "%v fail", c.fails)
				return
			}
			expect.That(t, strings.HasPrefix(waits, "closes: every call has failed since 2000-01-01T00:00:00Z") && strings.Contains(waits, "connection refused"),
				"%v fail: %q", c.fails, waits)
			c.fails = nil
			time.Sleep(time.Minute) // the breaker of the service has closed
			call()
			expect.Equal(t, len(a.Ready()), 0, "what is waited for after a close")
		})
	}
}

// A request to a service takes longer than a transaction.
func TestCloseMethod_AServiceHasMoreTime(t *testing.T) {
	asks := struct{ payment.Provider }{}
	for _, row := range []struct {
		method closeMethod
		want   time.Duration // 0: the default of the closer
	}{{closeMethod{}, 0}, {closeMethod{maxBatch: 200}, 3 * time.Second}, {closeMethod{provider: asks}, 3 * time.Second}} {
		expect.Equal(t, row.method.target(0), row.want, "%+v", row.method)
		got := row.method.target(time.Second)
		expect.That(t, got == time.Second, "%+v: %v in place of the configured second", row.method, got)
	}
}
