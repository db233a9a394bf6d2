package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func runDev(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err,
		LookupEnv: func(string) (string, bool) { return "", false },
	}, args)
	return out.String(), err.String(), code
}

// TestDemo_PrintsOneJSONObjectAndKeepsEveryGuarantee runs a short demo.
func TestDemo_PrintsOneJSONObjectAndKeepsEveryGuarantee(t *testing.T) {
	out, stderr, code := runDev(t, "demo", "--orders", "40", "--rate", "40", "-o", "json")
	var s map[string]any
	err := json.Unmarshal([]byte(out), &s)
	must.That(t, err == nil && code == 0, "exit %d, %v in %q\n%s", code, err, out, stderr)
	expect.That(t, s["backend"] == "embedded" && s["orders"] == 40.0 && s["open"] == 0.0 && s["early"] == 0.0 && s["stock_ok"] == true, "%v", s)
	expect.That(t, s["closed_by_sweep"].(float64) >= 1 && s["closed_by_pipeline"].(float64) >= 1 && s["paid"].(float64) >= 1, "some cases are missing: %v", s)
	if s["events"].(float64) != s["closed_by_sweep"].(float64)+s["closed_by_pipeline"].(float64) {
		t.Errorf("%v events: %v", s["events"], s)
	}
	lateness, _ := s["lateness_ms"].(map[string]any)
	for _, key := range []string{"p50", "p99", "max"} {
		_, ok := lateness[key].(float64)
		expect.That(t, ok, "no lateness_ms.%s in %v", key, s)
	}
}

func TestDemo_SaysWhatItWaitsFor(t *testing.T) {
	for want, n := range map[string]counts{
		"3 created, 1 paid, 1 closed": {orders: 3, unpaid: 1, paid: 1, closed: 1, outgoing: 2},
		"3 created, 1 paid, 2 closed; waits until the outbox has published 2 more rows": {orders: 3, paid: 1, closed: 2, outgoing: 2},
		"3 created, 1 paid, 2 closed": {orders: 3, paid: 1, closed: 2},
	} {
		got := n.describe(3)
		expect.That(t, got == want, "%+v: %q, want %q", n, got, want)
	}
}

func TestDemo_RefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--orders", "3"}, {"--rate", "0"}, {"-o", "xml"}} {
		out, stderr, code := runDev(t, append([]string{"demo"}, args...)...)
		expect.That(t, code == 2 && out == "" && stderr != "", "%v: exit %d, %q, %q", args, code, out, stderr)
	}
}

func TestExports_ReadsTheFileOfMakeUp(t *testing.T) {
	got := exports("export A='1'\nexport B='x=y'\n\n")
	diff := cmp.Diff(map[string]string{"A": "1", "B": "x=y"}, got)
	expect.That(t, diff == "", "%v", diff)
}
