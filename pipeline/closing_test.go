package pipeline

import (
	"errors"
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

// TestReady_HintsAtAServiceThatFailsEveryCall: while every call fails, the app gives a hint and stays ready.
func TestReady_HintsAtAServiceThatFailsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Default()
		cfg.Closer.Kind = config.KindHTTP
		cfg.Closer.HTTP.URL = "http://shop.test/close"
		a := must.Get(New(Options{
			Config:   cfg,
			Secrets:  Secrets{HTTP: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
			Services: transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }),
		}))(t)
		a.ready.waiting.remove(needRun)
		method := must.Get(a.closeMethodOnce())(t)
		call := func() {
			_, _ = method.store.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		}
		call()
		expect.Equal(t, len(a.Hints()), 0, "hints after one failure")
		time.Sleep(failingFor)
		call()
		hints := strings.Join(a.Hints(), "\n")
		expect.That(t, strings.HasPrefix(hints, "closing service: every call has failed since 2000-01-01T00:00:00Z") &&
			strings.Contains(hints, "connection refused") && len(a.Ready()) == 0, "hints %q, waiting %q", hints, a.Ready())
	})
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
