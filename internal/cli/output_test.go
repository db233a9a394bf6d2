package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The help of each command has an example, which is a command line of it.
func TestHelp_HasAnExampleOfEachCommand(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.HasSubCommands() || cmd.Hidden {
			return
		}
		expect.That(t, strings.Contains(cmd.Example, cmd.CommandPath()), "%s: the example is %q", cmd.CommandPath(), cmd.Example)
	}
	visit(newRoot(Env{}))
}

// With -o json an error is JSON too, with the exit code.
func TestMain_WritesErrorsAsJSON(t *testing.T) {
	_, stderr, code := run(t, nil, "status", "-o", "json", "--config", topicsYAML(t, "buckets: [10s]\n"))
	var got failure
	must.Do(t, json.Unmarshal([]byte(stderr), &got))
	expect.That(t, got.Code == code && code == int(Usage) && strings.Contains(got.Error, environ.EnvBrokers+" is not set"), "exit %d: %s", code, stderr)
}

// The log is JSON with --log-format json or the variable. Another format is refused.
func TestMain_LogsInTheFormat(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\n")
	env := map[string]string{environ.EnvBrokers: "127.0.0.1:1", environ.EnvLogFormat: "xml"}
	_, stderr, code := run(t, env, "run", "relay", "--config", file)
	expect.That(t, code == int(Usage) && strings.Contains(stderr, environ.EnvLogFormat), "exit %d: %s", code, stderr)
	var out strings.Builder
	c := common{env: Env{Stderr: &out}, format: "json"}
	c.logger().Info("run orderclose status", "hint", "orderclose doctor")
	expect.That(t, strings.Contains(out.String(), `"hint":"orderclose doctor"`), "%s", out.String())
}

// SQL for scripts is in an object with -o json.
func TestPrintSQL_IsJSONToo(t *testing.T) {
	out, stderr, code := run(t, nil, "migrate", "--print", "-o", "json", "--config", topicsYAML(t, "buckets: [10s]\n"))
	var got struct{ SQL string }
	must.That(t, json.Unmarshal([]byte(out), &got) == nil, "exit %d: %s%s", code, out, stderr)
	expect.That(t, code == 0 && strings.Contains(got.SQL, "CREATE "), "exit %d: %s", code, out)
}

// A sweeper's topics.yaml needs no buckets; with Kafka they are missing.
func TestRun_TheFileOfASweeperNeedsNoBuckets(t *testing.T) {
	file := topicsYAML(t, "delays: {default: 5m}\n")
	for _, c := range []struct {
		role string
		env  map[string]string
		says string
	}{
		{"sweeper", nil, environ.EnvDSN + " is not set"},
		{"sweeper", map[string]string{environ.EnvBrokers: "k:1"}, environ.EnvDSN + " is not set"},
		{"relay", map[string]string{environ.EnvBrokers: "k:1"}, "no bucket"},
	} {
		_, stderr, code := run(t, c.env, "run", c.role, "--config", file)
		expect.That(t, code == int(Usage) && strings.Contains(stderr, c.says), "%+v: exit %d: %s", c, code, stderr)
	}
}
