package cli

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestRooms_CommandsRefuseWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"shadow", "report"}, "--from is missing"},
		{[]string{"shadow", "report", "--from", "1h", "--to", "2h"}, "is not before"},
		{[]string{"shadow", "report", "--from", "1h", "--tolerance", "none"}, "--tolerance"},
		{[]string{"shadow", "report", "--from", "1h", "--limit", "-1"}, "--limit"},
		{[]string{"shadow", "report", "--from", "1h"}, config.EnvDSN},
		{[]string{"shadow", "run"}, "unknown command"},
		{[]string{"run", "shadow"}, config.EnvDSN},
		{[]string{"run", "shadow", "relay", "closer"}, "without closer and compensator"},
		{[]string{"run", "all", "shadow"}, "without closer and compensator"},
	} {
		_, stderr, code := run(t, map[string]string{config.EnvBrokers: "127.0.0.1:1"}, append(c.args, "--config", topicsYAML(t, "buckets: [10s]\n"))...)
		expect.That(t, code == 2 && strings.Contains(stderr, c.want), "%v: exit %d, %q; want exit 2 and %q", c.args, code, stderr, c.want)
	}
}
