package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// These tests compare what the chart and the units of systemd say about orderclose with its code; kubetest tests the objects of the chart.

// knownVariables returns the names of all variables that orderclose reads.
func knownVariables(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	lookup := func(name string) (string, bool) { known[name] = true; return "", false }
	must.Get(environ.Read(lookup))(t)
	must.Get(environ.Read(lookup, room.Variables(rooms.All())...))(t)
	must.Get(environ.ReadConsole(lookup))(t)
	for name := range known { // a variable that was replaced is read only to be refused
		lookup := func(asked string) (string, bool) { return map[bool]string{true: "x"}[asked == name], asked == name }
		_, err := environ.Read(lookup)
		_, ofConsole := environ.ReadConsole(lookup)
		if strings.Contains(fmt.Sprint(err, ofConsole), "does not read this any more") {
			delete(known, name)
		}
	}
	return known
}

var notSet = regexp.MustCompile(`(ORDERCLOSE_[A-Z_]+) is not set`)

// requiredVariables runs a command line without any variable, and returns those that it asks for. It fails if the command line is wrong in another way.
func requiredVariables(t *testing.T, topics string, args []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errs bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/orderclose/topics.yaml", topics)
	}
	code := cli.Main(ctx, cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs, LookupEnv: none, Rooms: rooms.All()}, args)
	var names []string
	for _, m := range notSet.FindAllStringSubmatch(errs.String(), -1) {
		names = append(names, m[1])
	}
	expect.That(t, code == int(cli.Usage) && len(names) != 0, "orderclose %v exits with %d: %s", args, code, errs.String())
	return names
}

// stopTimeout returns how long a process may take to stop.
func stopTimeout(t *testing.T) time.Duration {
	t.Helper()
	text := must.Get(os.ReadFile("../internal/cli/run.go"))(t)
	m := regexp.MustCompile(`const stopTimeout = (\d+) \* time\.Second`).FindSubmatch(text)
	must.That(t, m != nil, "internal/cli/run.go has no stopTimeout")
	d := must.Get(time.ParseDuration(string(m[1]) + "s"))(t)
	return d
}

// With its environment the console starts on the
// loopback and behind its proxy, and a role needs only what its pod has.
func TestKubernetes_ConsoleAndRoomsRunWithWhatTheyNeed(t *testing.T) {
	text := must.Get(os.ReadFile("helm/orderclose/values.yaml"))(t)
	var values struct {
		Env     map[string]string
		Console struct{ Env map[string]string }
	}
	must.Do(t, yaml.Unmarshal(text, &values))
	for name, more := range map[string]map[string]string{
		"on the loopback": {},
		"with its proxy": {environ.EnvConsoleProxies: "127.0.0.1", environ.EnvConsoleUserHeader: "X-Forwarded-Email", environ.EnvConsoleHosts: "console.example",
			environ.EnvConsoleOperators: "ann@shop.example"},
	} {
		env := maps.Clone(values.Console.Env)
		maps.Copy(env, more)
		c, err := environ.ReadConsole(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		expect.That(t, err == nil && c.OnLoopback() && strings.HasSuffix(c.Listen, ":9465"), "%s: %v, %v", name, c, err)
	}
	expect.Equal(t, values.Env[environ.EnvDSN+"_FILE"], "/run/secrets/database/dsn", "the file of the DSN")
	for _, r := range rooms.All() {
		for _, role := range r.Roles {
			for _, name := range requiredVariables(t, "../topics.yaml", []string{"run", role.Name, "--config=/etc/orderclose/topics.yaml"}) {
				has := role.Database && name == environ.EnvDSN || role.Kafka && name == environ.EnvBrokers || slices.Contains(r.Variables, name)
				expect.That(t, has, "the role %s needs %s, which its pod does not have", role.Name, name)
			}
		}
	}
}

// The files and documents that a user copies name variables that exist.
func TestKubernetes_VariablesExist(t *testing.T) {
	known := knownVariables(t)
	for _, name := range []string{
		"helm/orderclose/values.yaml", "kubetest/chart_test.go", "systemd/README.md", "../docs/kubernetes.md",
	} {
		text := must.Get(os.ReadFile(name))(t)
		for _, variable := range regexp.MustCompile(`ORDERCLOSE_[A-Z_]+`).FindAllString(string(text), -1) {
			expect.That(t, known[variable], "%s: orderclose does not know the variable %s", name, variable)
		}
	}
}

// Closers and relays are scaled by metrics that processes register.
func TestKubernetes_ScalesByExistingMetrics(t *testing.T) {
	t.Chdir("alerts") // described reads topics.yaml relative to it
	have, names := described(t), 0
	for _, file := range []string{"autoscaling.yaml", "_helpers.tpl"} {
		text := must.Get(os.ReadFile("../helm/orderclose/templates/" + file))(t)
		for _, name := range metricName.FindAllString(string(text), -1) {
			expect.That(t, have[name], "%s: a query uses %s, which no process exports", file, name)
			names++
		}
	}
	expect.That(t, names >= 4, "the queries name %d metrics", names)
}
