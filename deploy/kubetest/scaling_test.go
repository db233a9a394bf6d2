package kubetest

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// queries returns what scales closers and relays.
func queries(t *testing.T, text string) (closer, relay scaledObject) {
	t.Helper()
	all := rendered(t, text).scaledObjects(t)
	for name, s := range all {
		switch {
		case strings.HasSuffix(name, "-closer"):
			closer = s
		case strings.HasSuffix(name, "-relay"):
			relay = s
		default:
			t.Errorf("%s is scaled too", name)
		}
	}
	if len(closer.Spec.Triggers) != 2 || len(relay.Spec.Triggers) != 1 {
		t.Fatalf("%+v, want closers with two triggers and relays with one", all)
	}
	return closer, relay
}

func TestScaling_ScalesWithinItsBounds(t *testing.T) {
	for text, want := range map[string][4]int{ // the least and most closers, and relays
		allOn:                                {2, 6, 2, 12},
		whole:                                {2, 4, 2, 4}, // 4 partitions
		allOn + "topics: {partitions: 1}\n":  {1, 1, 1, 1},
		allOn + "topics: {partitions: 48}\n": {2, 6, 2, 48},
	} {
		closer, relay := queries(t, text)
		have := [4]int{closer.Spec.MinReplicaCount, closer.Spec.MaxReplicaCount, relay.Spec.MinReplicaCount, relay.Spec.MaxReplicaCount}
		that(t, have == want, "%s: closers and relays scale within %v, want %v", text, have, want)
		cpu := closer.Spec.Triggers[0]
		that(t, cpu.Type == "cpu" && cpu.MetricType == "Utilization" && cpu.Metadata["value"] == "70", "closers scale on %+v, want CPU 70 %%", cpu)
	}
}

// The autoscaler owns the replicas of what it scales. A part that names them as well resets them with each update.
func TestScaling_OwnsTheReplicas(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		scaled := map[string]bool{}
		for _, s := range all.scaledObjects(t) {
			scaled[cmp.Or(s.Spec.ScaleTargetRef.Kind, "Deployment")+" "+s.Spec.ScaleTargetRef.Name] = true
		}
		for _, p := range all.parts(t) {
			that(t, (p.replicas == nil) == scaled[p.of], "%s has replicas: %v, is scaled: %v", p.of, p.replicas != nil, scaled[p.of])
			delete(scaled, p.of)
		}
		that(t, len(scaled) == 0, "%v are scaled, and are no parts", scaled)
	})
}

// A part that does not run is not scaled.
func TestScaling_IsOfPartsThatRun(t *testing.T) {
	for _, part := range []string{"closer", "relay"} {
		for name := range rendered(t, strings.Replace(allOn, "roles: {", "roles: {"+part+": {enabled: false}, ", 1)).scaledObjects(t) {
			that(t, !strings.HasSuffix(name, "-"+part), "%s is scaled, and does not run", name)
		}
	}
}

// A delay topic holds orders that wait, so its lag says nothing about the work of relays. Fallback replicas would end the hold of a pause.
func TestScaling_NeverReadsTheLagOfADelayTopic(t *testing.T) {
	lag, closeTopic := regexp.MustCompile(`delay_\d|lag|topic=~|topic!`), regexp.MustCompile(`topic="(staging-)?order-close"`)
	eachSet(t, func(t *testing.T, all objects) {
		for name, s := range all.scaledObjects(t) {
			that(t, s.Spec.Fallback == nil, "%s has a fallback", name)
			for _, trigger := range s.Spec.Triggers {
				if trigger.Type == "cpu" {
					continue
				}
				query := trigger.Metadata["query"]
				that(t, trigger.Type == "prometheus" && trigger.MetricType == "Value" && trigger.Metadata["ignoreNullValues"] == "false",
					"%s: the trigger is %+v", name, trigger)
				that(t, !lag.MatchString(query), "%s may read the lag of a delay topic: %s", name, query)
				that(t, !strings.Contains(query, "orderclose_waiting_") || closeTopic.MatchString(query), "%s reads more than the close topic: %s", name, query)
			}
		}
	})
}

// promtool evaluates the queries: what they return while something of the own namespace is overdue, and that they return
// nothing, which holds the replicas, while something is paused or nothing is measured.
func TestScaling_QueriesHoldWhilePaused(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("REQUIRE_REAL") == "1" {
			t.Fatal("promtool is not there: run deploy/native/install.sh promtool")
		}
		t.Skip("promtool is not there")
	}
	const own, other = `namespace="shop",job="orderclose"`, `namespace="other",job="orderclose"`
	overdue := []string{
		`orderclose_waiting_overdue_seconds{` + own + `,instance="a",topic="order-close"}: 40`,
		`orderclose_waiting_overdue_seconds{` + own + `,instance="b",topic="order-close"}: 30`,
		`orderclose_waiting_overdue_seconds{` + own + `,instance="a",topic="delay_5m"}: 9000`,
		`orderclose_waiting_overdue_seconds{` + other + `,instance="c",topic="order-close"}: 8000`,
		`orderclose_delay_head_due_timestamp_seconds{` + own + `,instance="d",topic="delay_5m",partition="0"}: 0`,
		`orderclose_delay_head_due_timestamp_seconds{` + own + `,instance="d",topic="delay_5m",partition="1"}: 113`,
		`orderclose_delay_head_due_timestamp_seconds{` + other + `,instance="e",topic="delay_5m",partition="1"}: 1`,
	}
	paused := func(labels, orders, value string) string {
		return `orderclose_paused{` + labels + `,instance="a",orders="` + orders + `"}: ` + value
	}
	var tests []values
	for _, c := range []struct {
		name          string
		series        []string
		closer, relay string // the value; "": the query has no result
	}{
		{"no process reports pauses", overdue, "40", "7"},
		{"nothing is paused", append([]string{paused(own, "all", "0"), paused(own, "category", "0")}, overdue...), "40", "7"},
		{"all orders are paused", append([]string{paused(own, "all", "1"), paused(own, "category", "0")}, overdue...), "", ""},
		{"a category is paused", append([]string{paused(own, "all", "0"), paused(own, "category", "1")}, overdue...), "", ""},
		{"another pipeline is paused", append([]string{paused(other, "all", "1")}, overdue...), "40", "7"},
		{"nothing is measured", nil, "", ""},
	} {
		closer, relay := queries(t, allOn)
		var input []values
		for _, s := range c.series {
			series, value, _ := strings.Cut(s, ": ")
			input = append(input, values{"series": series, "values": value + "x5"})
		}
		var checks []values
		for query, want := range map[string]string{closer.Spec.Triggers[1].Metadata["query"]: c.closer, relay.Spec.Triggers[0].Metadata["query"]: c.relay} {
			check := values{"expr": query, "eval_time": "2m"}
			if want != "" {
				check["exp_samples"] = []values{{"labels": "{}", "value": want}}
			}
			checks = append(checks, check)
		}
		tests = append(tests, values{"name": c.name, "interval": "1m", "input_series": input, "promql_expr_test": checks})
	}
	text, err := yaml.Marshal(values{"rule_files": []string{}, "evaluation_interval": "1m", "tests": tests})
	must(t, err)
	file := filepath.Join(t.TempDir(), "queries.test.yml")
	must(t, os.WriteFile(file, []byte(regexp.MustCompile(`value: "(\d+)"`).ReplaceAllString(string(text), "value: $1")), 0o600))
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	that(t, err == nil, "%v\n%s", err, out)
}
