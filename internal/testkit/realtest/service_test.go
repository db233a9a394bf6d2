package realtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const serviceSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// The closer has no database at all. The service is down for a while.
func TestReal_OrdersCloseThroughAService(t *testing.T) { eachDatabase(t, closeThroughAService) }

func closeThroughAService(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	r.disturbed = true
	var down atomic.Bool
	closes := must.Get(httpclose.Handler([]string{serviceSecret}, r.store.CloseOrders))(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		closes.ServeHTTP(w, q)
	}))
	t.Cleanup(service.Close)
	r.configure(fmt.Sprintf("closer: {http: {url: %q, batch: 50}}\n", service.URL+"/close"))
	if _, code := r.cli("run", "closer"); code != 2 || !strings.Contains(r.logs.Tail(2000), environ.EnvHTTPSecret) {
		t.Errorf("without a secret it exits with %d, and says %s", code, r.logs.Tail(2000))
	}
	r.extra = func(args []string) []string {
		env := []string{environ.EnvHTTPSecret + "=" + serviceSecret}
		if slices.Contains(args, "closer") {
			env = append(env, environ.EnvDSN+"=")
		}
		return env
	}
	if _, code := r.cli("run", "closer", "compensator"); code != 2 || !strings.Contains(r.logs.Tail(2000), environ.EnvDSN) {
		t.Errorf("a sweep without a database exits with %d, and says %s", code, r.logs.Tail(2000))
	}
	r.start("relay", "closer", "compensator")
	r.firstStart()
	played := make(chan struct{})
	go func() {
		defer close(played)
		r.play(7, 300, 10*time.Second)
	}()
	r.untilClosed(60)
	down.Store(true)
	r.created(280)
	down.Store(false)
	<-played
	r.settle()
	v := r.check()
	expect.That(t, v.ByPath["pipeline"] != 0 && v.ByPath["sweep"] != 0, "closed by path %v: the history is not whole", v.ByPath)
	expect.Equal(t, r.count("SELECT COALESCE(SUM(attempts), 0) FROM receipts"), 0, "attempts were used up")
}
