package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// run runs a command line without a server and returns its output.
func run(t *testing.T, env map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runOn(t, "", env, args...)
}

// runOn is like run, with text on stdin.
func runOn(t *testing.T, stdin string, env map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = Main(t.Context(), Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &err,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}, args)
	return out.String(), err.String(), code
}

func topicsYAML(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestMain_WrongArgumentsExitWith2AndAHint(t *testing.T) {
	good := topicsYAML(t, "buckets: [10s]\n")
	bad := topicsYAML(t, "buckets: [10s]\npartition: 3\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "relay", "--config", good}, environ.EnvBrokers},
		{[]string{"run", "closer", "--config", good}, environ.EnvDSN},
		{[]string{"run", "compensator", "--config", good}, environ.EnvDSN},
		{[]string{"run", "outbox", "--config", good}, environ.EnvDSN},
		{[]string{"run", "outbox", "--config", good}, environ.EnvBrokers},
		{[]string{"run", "console", "--config", good}, environ.EnvBrokers},
		{[]string{"console", "--config", good}, environ.EnvDSN},
		{[]string{"run", "painter", "--config", good}, "painter"},
		{[]string{"topics", "check", "--config", bad}, bad + ":2:1"},
		{[]string{"topics", "check", "--config", "nowhere.yaml"}, "nowhere.yaml"},
		{[]string{"compensate", "--once", "--config", good}, "--once"},
		{[]string{"replay", "--config", good}, "--from is missing"},
		{[]string{"replay", "--from", "soon", "--to", "1h"}, "--from is \"soon\""},
		{[]string{"replay", "--from", "1h", "--to", "2h"}, "is not before"},
		{[]string{"replay", "--from", "1h", "--order", " a"}, "--order: order \" a\" refused"},
		{[]string{"replay", "--from", "1h", "--rate", "0"}, "--rate is 0"},
		{[]string{"events", "again", "--config", good}, "--from is missing"},
		{[]string{"events", "again", "--from", "1h", "--to", "2h"}, "is not before"},
		{[]string{"events", "again", "--from", "1h", "--rate", "0"}, "--rate is 0"},
		{[]string{"events", "again", "--from", "1h", "--config", good}, environ.EnvDSN},
		{[]string{"audit", "--config", good}, "--from is missing"},
		{[]string{"audit", "--from", "1h", "--to", "2h", "--config", good}, "is not before"},
		{[]string{"audit", "--from", "1h", "--bound", "long", "--config", good}, "--bound"},
		{[]string{"audit", "--from", "1h", "--limit", "-1", "--config", good}, "--limit"},
		{[]string{"audit", "--from", "1h", "--limit", "0", "-o", "json", "--config", good}, "jsonl"},
		{[]string{"audit", "--from", "1h", "--config", good}, environ.EnvDSN},
		{[]string{"status", "-o", "jsonl", "--config", good}, "want table or json"},
		{[]string{"order"}, "one argument"},
		{[]string{"order", "a", "--budget", "0"}, "--budget"},
		{[]string{"order", "a", "--within", "ever"}, "--within"},
		{[]string{"order", " a"}, "space"},
		{[]string{"order", "a", "--config", good}, environ.EnvBrokers},
		{[]string{"doctor", "--config", good}, environ.EnvDSN},
		{[]string{"pause", "--category", "", "--for", "1h", "--reason", "x", "--config", good}, "--category is empty"},
		{[]string{"resume", "--category", "", "--config", good}, "--category is empty"},
		{[]string{"migrate", "--print=", "--config", good}, "--print is empty"},
		{[]string{"dlq", "show", "0"}, "0/17"},
		{[]string{"dlq", "show"}, "one argument"},
		{[]string{"dlq", "ls", "--since", "soon"}, "--since"},
		{[]string{"dlq", "ls", "--limit", "-1"}, "--limit"},
		{[]string{"payments", "late", "--config", good}, environ.EnvDSN},
		{[]string{"payments", "resolve", "--refunded"}, "wants one argument"},
		{[]string{"payments", "resolve", "x", "--refunded"}, "ID is \"x\""},
		{[]string{"payments", "resolve", "1"}, "--refunded or --reopened"},
		{[]string{"payments", "resolve", "1", "--refunded", "--reopened"}, "--refunded or --reopened"},
		{[]string{"payments", "resolve", "1", "--refunded", "--config", good}, environ.EnvDSN},
		{[]string{"send", "--config", good}, "--id"},
		{[]string{"send", "--id", "o", "--due", "tomorrow"}, "--due is \"tomorrow\""},
		{[]string{"migrate", "--print=oracle"}, "oracle"},
		{[]string{"delays", "explain", "--config", bad}, bad + ":2:1"},
		{[]string{"delays", "explain", "--config", good, "--at", "noon"}, "--at is \"noon\""},
		{[]string{"delays", "explain", "--config", good, "--attribute", "pay"}, "--attribute is \"pay\": want NAME=VALUE"},
		{[]string{"delays", "explain", "--config", good, "--attribute", "=x"}, "want NAME=VALUE"},
		{[]string{"delays", "explain", "--config", good, "--attribute", "a=1", "--attribute", "a=2"}, "each name once"},
		{[]string{"version", "-o", "yaml"}, "yaml"},
		{[]string{"version", "--loud"}, "--loud"},
	} {
		stdout, stderr, code := run(t, nil, c.args...)
		expect.That(t, code == 2 && strings.Contains(stderr, c.want) && stdout == "",
			"%v: exit %d, stdout %q, stderr %q; want exit 2 and %q", c.args, code, stdout, stderr, c.want)
	}
}

func TestMain_VersionAndMigrationsNeedNoServer(t *testing.T) {
	out, _, code := run(t, nil, "version", "-o", "json")
	expect.That(t, code == 0 && strings.HasPrefix(out, `{"version":`), "exit %d, %q", code, out)
	if out, _, code := run(t, nil, "migrate", "--print"); code != 0 || !strings.Contains(out, "CREATE TABLE IF NOT EXISTS orders") {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestMain_MigrationsLeaveOutTheUsersOwnTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte(`buckets: [1m]
orders:
  table: t
  id: id
  status: {column: s, from: 0, to: 1}
  due: {column: d, type: unix_s}
  items: none
  stock: none
`), 0o600))
	out, _, code := run(t, nil, "migrate", "--print", "--config", file)
	expect.That(t, code == 0 && !strings.Contains(out, "CREATE TABLE IF NOT EXISTS orders ") && strings.Contains(out, "CREATE TABLE IF NOT EXISTS receipts"),
		"exit %d, %q", code, out)
	must.Do(t, os.WriteFile(file, []byte(`buckets: [1m]
delays: {default: 30m, categories: {"it's": 5m}}
orders:
  table: t
  id: id
  status: {column: s, from: 0, to: 1}
  due: {from: d, type: unix_s}
  items: none
  stock: none
`), 0o600))
	out, _, code = run(t, nil, "migrate", "--print", "--config", file)
	expect.That(t, code == 0 && strings.Contains(out, "INSERT INTO order_delays") && strings.Contains(out, "'it''s' AS category, 300000000 AS delay_us"),
		"by rule: exit %d, %q", code, out)
	_, stderr, code := run(t, nil, "migrate", "--print", "--config", file+"x")
	expect.That(t, code == 2 && strings.Contains(stderr, "topics.yamlx") && strings.Contains(stderr, "; orderclose init proposes one for the tables of your shop"),
		"a missing file: exit %d, %q", code, stderr)
}

func TestCodeOf_FindsTheCodeInTheChain(t *testing.T) {
	for want, err := range map[Code]error{
		Done: nil, Failed: errors.New("broken"), TimedOut: fmt.Errorf("asking: %w", context.DeadlineExceeded),
		Partly: fmt.Errorf("half: %w", Exit(Partly, errors.New("x"))), Findings: Exit(Findings, errors.New("x")),
		Fenced: errors.Join(fmt.Errorf("relay: %w", pipeline.ErrFenced)),
	} {
		got := codeOf(err)
		expect.That(t, got == int(want), "%v exits with %d, want %d", err, got, want)
	}
}

func TestParseTime_AcceptsATimeOrAnAge(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for s, want := range map[string]time.Time{
		"2023-11-14T22:13:20Z": now, "90m": now.Add(-90 * time.Minute), "-90m": now.Add(-90 * time.Minute), "2d": now.Add(-48 * time.Hour),
	} {
		got, err := parseTime("--from", s, now)
		expect.That(t, err == nil && got.Equal(want), "%s: %v, %v; want %v", s, got, err, want)
	}
}

func TestProgress_ShowsALineEachTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := NewProgress(&b, "done")
		p.Show(1, 3)
		time.Sleep(progressEvery)
		p.Show(2, 3)
		p.Say("too soon again")
		expect.Equal(t, b.String(), "done 2/3\n", "lines")
		(*Progress)(nil).Show(1, 2) // with --quiet
	})
}

func TestRun_RolesAreAddedToAll(t *testing.T) {
	for _, c := range []struct {
		args, want string
	}{
		{"", "relay closer compensator outbox"},
		{"all webhook console", "relay closer compensator outbox webhook console"},
		{"relay webhook relay", "relay webhook"},
		{"painter", `unknown role "painter": run [relay closer compensator outbox sweeper webhook console], or all`},
	} {
		roles, err := rolesOf(strings.Fields(c.args))
		got := strings.Trim(fmt.Sprint(roles), "[]")
		if err != nil {
			got = err.Error()
		}
		expect.Equal(t, got, c.want, "run %s", c.args)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares the output of table with testdata/NAME.txt. Run the tests with
// UPDATE_GOLDEN=1 to write the files, and read the diff before you commit it.
func golden(t *testing.T, name string, table func(w io.Writer)) {
	t.Helper()
	var out strings.Builder
	c := &common{output: "table", env: Env{Stdout: &out}}
	must.Do(t, c.print(nil, table))
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	expect.Same(t, out.String(), string(want), "%s", path)
}

// The variable names the topics.yaml of the commands that a person copies from an output. The flag goes before it.
func TestMain_ReadsTheFileOfTheVariable(t *testing.T) {
	file := topicsYAML(t, "delays: {default: 47m}\nbuckets: [10s]\n")
	env := map[string]string{config.EnvConfig: file}
	out, stderr, code := run(t, env, "delays", "explain")
	expect.That(t, code == 0 && strings.Contains(out, "47m"), "exit %d:\n%s%s", code, out, stderr)
	_, stderr, code = run(t, env, "delays", "explain", "--config", "nowhere.yaml")
	expect.That(t, code == int(Usage) && strings.Contains(stderr, "nowhere.yaml"), "exit %d:\n%s", code, stderr)
}
