package realtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/config"
)

const serviceSecret = "a secret of the real tests"

// closingService is a shop's service that closes orders. It has each fault now and
// then, and is down for a while in the middle.
func (r *rig) closingService(down *atomic.Bool) *httptest.Server {
	r.t.Helper()
	closes, err := httpclose.Handler([]string{serviceSecret}, func(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return r.store.CloseOrders(ctx, path, requests)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := calls.Add(1)
		switch {
		case down.Load():
			panic(http.ErrAbortHandler)
		case n%11 == 0: // it closes the orders, and the answer is lost
			closes.ServeHTTP(httptest.NewRecorder(), q)
			panic(http.ErrAbortHandler)
		case n%13 == 0:
			_, _ = io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
		case n%17 == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			closes.ServeHTTP(w, q)
		}
	}))
	r.t.Cleanup(server.Close)
	return server
}

// The closer has no database at all. The service has all kinds of failures, and is
// down for a while.
func TestReal_OrdersCloseThroughAService(t *testing.T) { eachDatabase(t, closeThroughAService) }

func closeThroughAService(t *testing.T, servers config.Servers) {
	r := newRig(t, servers)
	r.disturbed = true
	var down atomic.Bool
	service := r.closingService(&down)
	topics, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	topics = fmt.Appendf(topics, "closer: {kind: http, http: {url: %q, batch: 50}}\n", service.URL+"/close")
	if err := os.WriteFile(r.file, topics, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, code := r.cli("run", "closer"); code != 2 || !strings.Contains(r.logs.tail(2000), config.EnvHTTPSecret) {
		t.Errorf("without a secret it exits with %d, and says %s", code, r.logs.tail(2000))
	}
	r.extra = func(args []string) []string {
		env := []string{config.EnvHTTPSecret + "=" + serviceSecret}
		if slices.Contains(args, "closer") {
			env = append(env, config.EnvDSN+"=")
		}
		return env
	}
	if _, code := r.cli("run", "closer", "compensator"); code != 2 || !strings.Contains(r.logs.tail(2000), config.EnvDSN) {
		t.Errorf("a sweep without a database exits with %d, and says %s", code, r.logs.tail(2000))
	}
	r.start("relay", "closer", "compensator")
	go func() {
		<-time.After(6 * time.Second)
		down.Store(true)
		<-time.After(4 * time.Second)
		down.Store(false)
	}()
	r.play(7, 300, 10*time.Second)
	r.settle(60 * time.Second)
	if v := r.check(); v.ByPath["pipeline"] == 0 || v.ByPath["sweep"] == 0 {
		t.Errorf("closed by path %v: the history is not whole", v.ByPath)
	}
	var attempts int
	if err := r.store.DB().QueryRowContext(t.Context(), "SELECT COALESCE(SUM(attempts), 0) FROM receipts").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("%d attempts were used up, %v", attempts, err)
	}
}
