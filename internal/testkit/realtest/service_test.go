package realtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const serviceSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// faultsPerOrder is how many calls with one order may fail on purpose. The closer blames an order that fails alone while the service answers for other
// orders, and gives it up after four times. Without the limit, random faults would sometimes hit one order four times.
const faultsPerOrder = 2

// lostAnswer is the key of a *atomic.Bool in the context of a request, which says that its answer is lost.
type lostAnswer struct{}

// closingService is a shop's service that closes orders. It has each fault now and then, and is down for a while in the middle.
func (r *rig) closingService(down *atomic.Bool) *httptest.Server {
	r.t.Helper()
	var calls atomic.Int64
	faults := &faultCounts{of: map[string]int{}}
	closes, err := httpclose.Handler([]string{serviceSecret}, func(ctx context.Context, path orderclose.Path,
		requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		n := calls.Add(1)
		if n%11 != 0 && n%13 != 0 && n%17 != 0 || !faults.add(requests) {
			return r.store.CloseOrders(ctx, path, requests)
		}
		switch {
		case n%11 == 0: // it closes the orders, and the answer is lost
			ctx.Value(lostAnswer{}).(*atomic.Bool).Store(true)
			return r.store.CloseOrders(ctx, path, requests)
		case n%13 == 0:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: on purpose", orderclose.ErrUnavailable)
	})
	must.Do(r.t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		var lost atomic.Bool
		answer := httptest.NewRecorder()
		closes.ServeHTTP(answer, q.WithContext(context.WithValue(q.Context(), lostAnswer{}, &lost)))
		if lost.Load() {
			panic(http.ErrAbortHandler) // not in the handler of closes, which takes a panic for the fault of an order
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	r.t.Cleanup(server.Close)
	return server
}

// faultCounts counts the faults by order.
type faultCounts struct {
	mu sync.Mutex
	of map[string]int
}

// add counts one more fault for each order. It returns false, and counts nothing, if an order had faultsPerOrder already.
func (f *faultCounts) add(requests []orderclose.CloseRequest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range requests {
		if f.of[q.OrderID] >= faultsPerOrder {
			return false
		}
	}
	for _, q := range requests {
		f.of[q.OrderID]++
	}
	return true
}

// The closer has no database at all. The service has all kinds of failures, and is down for a while.
func TestReal_OrdersCloseThroughAService(t *testing.T) { eachDatabase(t, closeThroughAService) }

func closeThroughAService(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	r.disturbed = true
	var down atomic.Bool
	service := r.closingService(&down)
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
