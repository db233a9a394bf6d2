package realtest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// While closing is paused nothing closes, in the pipeline and in sweeps. After it, everything does, without a failed attempt. The pause is a row of the
// database or, if a service closes, a record of the control topic.
func TestReal_APauseClosesNothingUntilItEnds(t *testing.T) {
	servers := realServers(t)
	t.Parallel()
	for name, service := range map[string]bool{"database": false, "service": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, servers)
			r.disturbed = true
			if service {
				r.closeByService()
			}
			r.start("relay", "closer", "compensator", "outbox")
			r.must("pause", "--for", "30m", "--reason", "a test")
			r.play(5, 60, time.Second)
			scenario.At(t.Context(), r.shop.LastDue().Add(2*compensator.Grace+time.Second)) // a longer time would find no more
			expect.Equal(t, r.count("SELECT COUNT(*) FROM receipts"), 0, "orders were closed during the pause")
			out, code := r.cli("status")
			if want := "paused: closes by pipeline of all orders until "; !strings.Contains(out, want) || !strings.Contains(out, "a test") {
				t.Errorf("status exits with %d and prints %s; want %q and the reason", code, out, want)
			}
			r.must("resume")
			r.settle()
			r.check()
			expect.Equal(t, r.count("SELECT COALESCE(SUM(attempts), 0) FROM receipts"), 0, "attempts were used up")
		})
	}
}

// closeByService makes a service close the orders, without faults.
func (r *rig) closeByService() {
	r.t.Helper()
	closes, err := httpclose.Handler([]string{serviceSecret}, func(ctx context.Context, path orderclose.Path,
		requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return r.store.CloseOrders(ctx, path, requests)
	})
	must.Do(r.t, err)
	service := httptest.NewServer(closes)
	r.t.Cleanup(service.Close)
	r.configure(fmt.Sprintf("closer: {http: {url: %q}}\n", service.URL+"/close"))
	r.extra = func([]string) []string { return []string{config.EnvHTTPSecret + "=" + serviceSecret} }
}
