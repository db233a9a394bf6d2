package access

import (
	"strings"
	"testing"

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
			name := strings.Split(host, ":")[0]
			expect.That(t, accepted[hostOf(name)] || strings.HasPrefix(host, "["), "%q is accepted", host)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
