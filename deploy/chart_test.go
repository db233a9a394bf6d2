package deploy

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// The chart knows the keys of topics.yaml, the variables and the roles from the program. In its schema a person writes all other values. These tests
// write the rest with UPDATE_GOLDEN=1.

// follows compares a file of the chart with what the program gives, or writes it.
func follows(t *testing.T, name, want string) {
	t.Helper()
	name = "helm/orderclose/" + name
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(name, []byte(want), 0o644))
	}
	have := string(must.Get(os.ReadFile(name))(t))
	expect.That(t, have == want, "%s is not what the program gives: UPDATE_GOLDEN=1 go test ./deploy -run ChartFollows", name)
}

// Helm refuses an unknown key, variable or role by the schema, before anything is installed. What is an enumeration there stays one.
func TestChartFollows_Schema(t *testing.T) {
	const name = "values.schema.json"
	var values map[string]any
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("helm/orderclose/"+name))(t), &values))
	at := func(path ...string) (in map[string]any) {
		in = values
		for _, key := range path {
			in = in[key].(map[string]any)
		}
		return in
	}
	topics := topicsSchema(t)
	delete(topics, "$schema")
	delete(topics, "title")
	topics["description"] = "The content of topics.yaml."
	at("properties")["topics"] = topics

	env, console := map[string]any{}, map[string]any{}
	for name := range knownVariables(t) {
		of, kind := env, any(map[string]any{"type": "string"})
		switch {
		case strings.HasPrefix(name, "ORDERCLOSE_CONSOLE_"), name == environ.EnvRunbook:
			of = console
		case name == environ.EnvListen, name == environ.EnvInstance: // the chart sets them
			continue
		case name == environ.EnvLogFormat:
			kind = map[string]any{"enum": []string{"text", "json"}}
		}
		of[name] = kind
	}
	at("properties", "env")["properties"], at("properties", "console", "properties", "env")["properties"] = env, console

	roles := map[string]any{}
	for _, name := range append(pipeline.RoleNames(), "payments") {
		roles[name] = map[string]any{"$ref": "#/definitions/role"}
	}
	roles[string(pipeline.Sweeper)] = map[string]any{"$ref": "#/definitions/sweeper"}
	at("properties", "roles")["properties"] = roles

	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	must.Do(t, e.Encode(values))
	follows(t, name, innermost.ReplaceAllStringFunc(text.String(), func(object string) string { return lineBreaks.ReplaceAllString(object, " ") }))
}

// An object without others in it is on one line.
var innermost, lineBreaks = regexp.MustCompile(`\{\n[^{}]*\}`), regexp.MustCompile(`\n *`)

func topicsSchema(t *testing.T) (s map[string]any) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("../topics.schema.json"))(t), &s))
	return s
}

// A duration that the program accepts passes the schema, and usual mistakes do not.
func TestChartSchema_ADurationIsOneOfTheProgram(t *testing.T) {
	found := map[string]bool{}
	schema := string(must.Get(os.ReadFile("helm/orderclose/values.schema.json"))(t))
	for _, m := range regexp.MustCompile(`"pattern": "([^"]*:ns\|[^"]*)"`).FindAllStringSubmatch(schema, -1) {
		found[m[1]] = true
	}
	must.That(t, len(found) == 1, "durations have the patterns %q", slices.Collect(maps.Keys(found)))
	pattern := regexp.MustCompile(slices.Collect(maps.Keys(found))[0])
	for text, want := range map[string]bool{
		"10s": true, "1h30m": true, "30d": true, "1d12h": true, "1.5h": true, "250ms": true, "+5m": true, ".5s": true, "1.s": true, "5000us": true, "2000µs": true,
		"1x": false, "5 minutes": false, "30": false, "-5m": false, "m": false, "1w": false, "": false, "+": false, "+5d": false, "5d+5m": false, ".s": false,
	} {
		_, err := config.ParseDuration(text)
		expect.That(t, (err == nil) == want && pattern.MatchString(text) == want, "%s: the program says %v, want %v of it and the schema", text, err, want)
	}
}

// knownVariables returns the names of all variables that orderclose reads.
func knownVariables(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	lookup := func(name string) (string, bool) { known[name] = true; return "", false }
	must.Get(environ.Read(lookup))(t)
	must.Get(environ.ReadConsole(lookup))(t)
	return known
}

// The files and documents that a user copies name variables that exist.
func TestKubernetes_VariablesExist(t *testing.T) {
	known := knownVariables(t)
	for _, name := range []string{"helm/orderclose/values.yaml", "kubetest/chart_test.go", "systemd/README.md", "../docs/kubernetes.md"} {
		text := must.Get(os.ReadFile(name))(t)
		for _, variable := range regexp.MustCompile(`ORDERCLOSE_[A-Z_]+`).FindAllString(string(text), -1) {
			expect.That(t, known[variable], "%s: orderclose does not know the variable %s", name, variable)
		}
	}
}

// With its environment the console starts on the loopback, and behind its proxy.
func TestKubernetes_TheConsoleAcceptsItsEnvironment(t *testing.T) {
	var values struct {
		Console struct{ Env map[string]string }
	}
	must.Do(t, yaml.Unmarshal(must.Get(os.ReadFile("helm/orderclose/values.yaml"))(t), &values))
	proxied := map[string]string{environ.EnvConsoleProxies: "127.0.0.1", environ.EnvConsoleUserHeader: "X-Forwarded-Email",
		environ.EnvConsoleHosts: "console.example", environ.EnvConsoleOperators: "ann@shop.example"}
	for name, more := range map[string]map[string]string{"on the loopback": {}, "with its proxy": proxied} {
		env := maps.Clone(values.Console.Env)
		maps.Copy(env, more)
		c, err := environ.ReadConsole(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		expect.That(t, err == nil && environ.OnLoopback(c.Listen) && strings.HasSuffix(c.Listen, ":9465"), "%s: %v, %v", name, c, err)
	}
}
