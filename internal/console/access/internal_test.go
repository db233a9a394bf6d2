package access

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func FuzzHostOf(f *testing.F) {
	for _, host := range []string{"localhost:1", "[::1]:1", "::1", "[fe80::1%eth0]", "a.:b", "::ffff:1.2.3.4"} {
		f.Add(host)
	}
	accepted := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	f.Fuzz(func(t *testing.T, host string) {
		if accepted[hostOf(host)] && strings.ContainsAny(host, "/@?#\\ ") {
			// A browser takes the part before these letters, or after @, for the host.
			if name := strings.Split(host, ":")[0]; !accepted[hostOf(name)] && !strings.HasPrefix(host, "[") {
				t.Errorf("%q is accepted", host)
			}
		}
	})
}

func TestThrottle_CountsNetworksOfIPv6AndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		at := func(text string) netip.Addr { return netip.MustParseAddr(text) }
		for range loginBurst / 2 {
			th.begin(at("fd00::1"))
			th.begin(at("fd00::ffff:2"))
		}
		expect.That(t, !th.begin(at("fd00::3")), "a client with many addresses is not limited")
		expect.That(t, th.begin(at("fd00:0:0:1::1")) && th.begin(at("10.0.0.1")) && th.begin(netip.Addr{}), "another network is limited")
		next := at("10.1.0.0")
		for range 2 * maxAddresses {
			th.begin(next)
			next = next.Next()
		}
		expect.That(t, len(th.failures) <= maxAddresses+1, "%d addresses are kept", len(th.failures))
		expect.That(t, !th.begin(next), "addresses that are not kept are not limited together")
		time.Sleep(time.Minute)
		expect.That(t, th.begin(next) && len(th.failures) <= 2, "after a minute %d addresses are kept", len(th.failures))
		th.succeed(next)
		_, kept := th.failures[th.key(next)]
		expect.That(t, !kept, "an address without failures is kept")
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
