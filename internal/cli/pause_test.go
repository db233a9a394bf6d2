package cli

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Without a database nothing can be paused. The command says what to do instead, whatever closes the orders.
func TestPause_WithoutADatabaseSaysWhatToDo(t *testing.T) {
	for what, yaml := range map[string]string{"a service": "closer: {http: {url: https://shop.example.com/close}}\n", "the database": ""} {
		file := topicsYAML(t, "buckets: [1m, 1h]\n"+yaml)
		for _, command := range []string{"pause --for 30m --reason INC-1", "pause --for 30m --reason INC-1 --category virtual", "resume"} {
			_, stderr, code := run(t, map[string]string{environ.EnvBrokers: "127.0.0.1:1"}, append(strings.Fields(command), "--config", file)...)
			expect.Equal(t, code, int(Refused), "exit code of %s, closed by %s", command, what)
			for _, want := range []string{environ.EnvDSN, "paused or 503", "stop the closers"} {
				expect.That(t, strings.Contains(stderr, want), "%s, closed by %s, does not say %q: %s", command, what, want, stderr)
			}
		}
	}
}
