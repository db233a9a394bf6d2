package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// measured returns a result of a way on a quiet machine.
func measured(system, workload string, change func(*result)) result {
	r := result{System: system, Workload: workload, Messages: 100, Cores: 2, Seconds: 10, Machine: "2 cores", Settings: map[string]string{"server": system + " 1"}}
	change(&r)
	return r
}

func late(system, workload string, ms float64) result {
	return measured(system, workload, func(r *result) { r.P99 = ms })
}

func crash(system, victim string, gap float64) result {
	return measured(system, "w4", func(r *result) { r.Victim, r.GapS = victim, gap })
}

func TestGrouped_PrefersFullAndUndisturbedResults(t *testing.T) {
	r := result{System: "redis", Workload: "w1", Cores: 2, Seconds: 10}
	quick, busy, failed, first, second := r, r, r, r, r
	quick.Quick, quick.P99 = true, 1
	busy.OtherCPU, busy.P99 = 15, 2
	failed.LeftOut = "the server did not start"
	first.P99, second.P99 = 10, 20
	for _, row := range []struct {
		all  []result
		p99  float64
		note string
	}{
		{[]result{quick, failed}, 1, "QUICK"},
		{[]result{quick, busy, failed}, 2, "busy machine"},
		{[]result{quick, busy, first, failed, second}, 15, "2 rounds"},
	} {
		groups := grouped(row.all)
		if len(groups) != 1 || groups[0].median("p99 ms") != row.p99 || groups[0].note() != row.note {
			t.Errorf("%d groups, p99 %g, note %q; want %g, %q", len(groups), groups[0].median("p99 ms"), groups[0].note(), row.p99, row.note)
		}
	}
	if g := grouped([]result{failed}); g[0][0].LeftOut != failed.LeftOut || !strings.Contains(page(g).trust(), "\n- redis, w1: the server did not start\n") {
		t.Errorf("left out: %q", page(g).trust())
	}
}

// A way that loses messages, is early or is late may be ahead. Another one is listed, with the W4 of a worker only if it is ahead by more than a second.
func TestAims_CountWaysThatKeepWhatTheyAcceptAndArePunctual(t *testing.T) {
	for name, c := range map[string]struct {
		rows  []result
		ahead bool
	}{
		"durable and punctual":              {[]result{late("redis", "w1", 5)}, true},
		"lost in a crash":                   {[]result{late("redis", "w1", 5), measured("redis", "w4", func(r *result) { r.Lost = 1 })}, false},
		"early":                             {[]result{late("redis", "w1", 5), measured("redis", "w3", func(r *result) { r.Early = 1 })}, false},
		"late in W3, and ahead in W1":       {[]result{late("redis", "w1", 5), late("redis", "w3", 9000)}, true},
		"ahead in the drain":                {[]result{late("redis", "w1", 1000), measured("redis", "w2", func(r *result) { r.DrainPS = 900_000 })}, true},
		"ahead in the drain, and late":      {[]result{late("redis", "w1", 1001), measured("redis", "w2", func(r *result) { r.DrainPS = 900_000 })}, false},
		"ahead as W5 closes":                {[]result{measured("poll-1s", "w5", func(r *result) { r.LastClosedS = 2 })}, true},
		"ahead in statements":               {[]result{measured("poll-1s", "w6", func(r *result) { r.Queries = 4 })}, true},
		"a worker is back a second earlier": {[]result{crash("redis", victimWorker, 1)}, false},
		"a worker is back earlier":          {[]result{crash("redis", victimWorker, 0.9)}, true},
		"a leader is replaced earlier":      {[]result{crash("redis-3", victimLeader, 1.9)}, true},
	} {
		all := append([]result{
			late("orderclose", "w1", 10), late("orderclose", "w3", 10), measured("orderclose", "w2", func(r *result) { r.DrainPS = 400_000 }),
			crash("orderclose", victimServer, 0.1), crash("orderclose", victimWorker, 2), crash("orderclose-3", victimLeader, 2),
			measured("orderclose", "w5", func(r *result) { r.LastClosedS = 3 }), measured("orderclose-all", "w6", func(r *result) { r.Queries = 100 }),
		}, c.rows...)
		got := page(grouped(all)).aims()
		expect.That(t, strings.Contains(got, "| no: ") == c.ahead, "%s:\n%s", name, got)
	}
	slow := crash("orderclose-3", victimLeader, 3.1)
	expect.That(t, strings.Contains(page(grouped([]result{slow})).aims(), "| 3.1 | none measured | no: the bound is 3 |"), "a gap above 3 s")
	slow.Quick = true
	expect.That(t, strings.Contains(page(grouped([]result{slow})).aims(), "| not judged: QUICK |"), "a short run is judged")
}

func TestReport_WritesThePartsOfPageAndREADMEAndTheData(t *testing.T) {
	root := t.TempDir()
	results := filepath.Join(root, "results.jsonl")
	for _, r := range []result{late("orderclose", "w1", 3), late("redis", "w1", 100), late("orderclose", "w3", 3), crash("orderclose", victimServer, 4),
		measured("poll-1s", "w5", func(r *result) { r.LastClosedS, r.AllCPU = 4, 0.05 })} {
		must.Do(t, appendResult(results, r))
	}
	must.Do(t, os.MkdirAll(filepath.Join(root, "docs", "data"), 0o755))
	write := func(name string, marks ...string) {
		t.Helper()
		text := "before\n"
		for _, mark := range marks {
			text += "<!-- " + mark + " -->\nold\n<!-- end -->\nafter\n"
		}
		must.Do(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	var marks []string
	for _, part := range slices.Concat([]string{"rows", "aims"}, allWorkloads) {
		marks = append(marks, "made by make bench-peers "+part)
	}
	write("README.md", "made by make bench-peers")
	write("docs/comparison.md", marks...)
	args := []string{"-results", results, "-root", root}
	for range 2 { // the second one changes nothing
		must.Do(t, runReport(args))
		for name, want := range map[string]string{
			"README.md":                         "make bench-peers -->\n- p99 of the lateness at 1,000 orders a second with delays of 1 to 10 s: **orderclose** 3 ms\n",
			"docs/comparison.md":                "<!-- made by make bench-peers w1 -->\n- p99 ms: **orderclose** 3, redis 100\n<!-- end -->\nafter\n",
			"docs/data/comparison-w4.csv":       "orderclose,server,4,0,100,0,0,0,0,0,0,\n",
			"docs/data/comparison-w5.csv":       "poll-1s,0,4,4,4,500,0,0,\n",
			"docs/data/comparison-settings.csv": "redis,server,redis 1\n",
			"docs/data/comparison-results.csv":  "redis,\"Redis sorted set, polled every 100 ms\",100,,,,,,,,,,,,,,0,0,0\n",
		} {
			text := string(must.Get(os.ReadFile(filepath.Join(root, name)))(t))
			expect.That(t, strings.Contains(text, want) && !strings.Contains(text, "old"), "%s has no %q:\n%s", name, want, text)
		}
	}
	write("README.md")
	expect.That(t, runReport(args) != nil, "a README.md without marks is accepted")
}

func TestWays_HaveUniqueNamesAndMake(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range specs() {
		expect.That(t, !seen[s.name] && s.title != "" && s.make(run{Way: s.name, Servers: map[string]string{}}) != nil, "way %q", s.name)
		expect.That(t, slices.ContainsFunc(allWorkloads, s.does), "way %q is in %q", s.name, s.workloads)
		seen[s.name] = true
	}
	_, err := specsOf("redis nothing")
	expect.That(t, err != nil && strings.Contains(err.Error(), "rabbitmq-queues"), "an unknown way: %v", err)
	for _, a := range aims {
		expect.That(t, medians[a.column] != nil, "%s has no column", a.text)
	}
}

func TestNumber_HasThreeDigitsAndSeparators(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3.8049: "3.8", 999.4: "999", 999.5: "1,000", 1234567.2: "1,234,567", -123456: "-123,456"} {
		expect.Equal(t, number(v), want, "%v", v)
	}
}
