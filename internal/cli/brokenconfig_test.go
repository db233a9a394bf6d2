package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

// TestBroker_StatusAndForecastWorkWithABrokenTopicsFile: the file is often broken when
// these commands are needed.
func TestBroker_StatusAndForecastWorkWithABrokenTopicsFile(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	if err := os.WriteFile(r.file, []byte("buckets: [1m, 1h]\npartitions: 2\npartition: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var report ops.Status
	if stderr := r.json(&report, 6, "status"); len(report.Topics) != 4 || report.Problems() != 0 || !strings.Contains(stderr, r.file+":3:1") {
		t.Errorf("status: %+v, %q", report, stderr)
	}
	var f ops.Forecast
	if stderr := r.json(&f, 6, "forecast"); len(f.Buckets) != 2 || f.Problems() != 0 || !strings.Contains(stderr, r.file+":3:1") {
		t.Errorf("forecast: %+v, %q", f, stderr)
	}
}

// What the file does not tell is not compared with the defaults.
func TestBroker_DoctorChecksWhatABrokenTopicsFileTells(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	valid, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	for mistake, want := range map[string]string{
		"partition: 3\n":                           "topics",
		"topics: {control: 'a b'}\n":               "topics, brokers, clock of Kafka",
		"topics: {prefix: 'e u'}\n":                "topics, brokers, dead letters, clock of Kafka",
		"closer: {batch: 0}\noutbox: {batch: 0}\n": "",
		"buckets: [\n":                             "topics, brokers, dead letters, clock of Kafka, database",
	} {
		if err := os.WriteFile(r.file, append([]byte(mistake), valid...), 0o600); err != nil {
			t.Fatal(err)
		}
		var result struct{ Checks []checkup }
		r.json(&result, 3, "doctor")
		var not []string
		for _, k := range result.Checks {
			if !k.OK && !k.Skipped != (k.Check == "topics.yaml") {
				t.Errorf("%q: %+v", mistake, k)
			}
			if k.What == "not checked: topics.yaml is broken" {
				not = append(not, k.Check)
			}
		}
		if got := strings.Join(not, ", "); got != want {
			t.Errorf("%q: not checked are %s, want %s", mistake, got, want)
		}
	}
}

func TestBroker_DoctorFindsAWrongValueOfTheEnvironment(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	out, _, code := run(t, map[string]string{config.EnvBrokers: r.brokers, config.EnvRedis: "no URL", config.EnvDSN: "root@tcp(127.0.0.1:1)/"}, "doctor", "-o", "json", "--config", r.file)
	var result struct{ Checks []checkup }
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 3 || result.Checks[0].Check != config.EnvDSN || result.Checks[1].Check != config.EnvRedis || !result.Checks[2].OK {
		t.Errorf("exit %d, %s, %v", code, out, err)
	}
}

func TestBroker_CommandsIgnoreInvalidValuesThatTheyDoNotUse(t *testing.T) {
	r := newRig(t)
	wrong := map[string]string{config.EnvBrokers: r.brokers, config.EnvRedis: "no URL", config.EnvListen: "nowhere", config.EnvReleaseURL: "x", config.EnvHTTPSecret: "x"}
	for _, args := range [][]string{{"topics", "apply"}, {"topics", "check"}, {"status"}, {"forecast"}, {"dlq", "ls"}} {
		if _, stderr, code := run(t, wrong, append(args, "--config", r.file)...); code != 0 {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	delete(wrong, config.EnvBrokers)
	wrong[config.EnvDSN] = "root@tcp(127.0.0.1:1)/shop"
	for _, args := range [][]string{{"migrate", "--wait", "100ms"}, {"doctor", "--stock"}} { // these need only the database
		if _, stderr, code := run(t, wrong, append(args, "--config", r.file)...); code == 2 {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	if _, stderr, code := run(t, wrong, "compensate", "--once", "--config", r.file); code != 2 || !strings.Contains(stderr, config.EnvRedis) {
		t.Errorf("a sweep takes the lock: exit %d, %q", code, stderr)
	}
}
