package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// some are results of two ways in all workloads, and one that was left out.
func some() []result {
	base := func(system, workload string) result {
		return result{System: system, Workload: workload, Messages: 100, Cores: 2, Seconds: 10, Machine: "2 cores",
			Settings: map[string]string{"server": system + " 1"}}
	}
	var all []result
	for _, w := range []string{"w1", "w3"} {
		own, other := base("orderclose", w), base("redis", w)
		own.P50, own.P99, other.P50, other.P99 = 1, 3, 50, 100
		all = append(all, own, other)
	}
	own, other := base("orderclose", "w2"), base("redis", "w2")
	own.DrainPS, other.DrainPS, other.ServerCPU, other.ClientCPU = 400_000, 100_000, 2, 3
	all = append(all, own, other)
	for _, victim := range []string{victimServer, victimWorker, victimLeader} {
		names := [2]string{"orderclose", "redis"}
		if victim == victimLeader {
			names = [2]string{"orderclose-3", "redis-3"}
		}
		own, other := base(names[0], "w4"), base(names[1], "w4")
		own.Victim, own.GapS, other.Victim, other.GapS = victim, 4, victim, 0.25
		all = append(all, own, other)
	}
	own, other = base("orderclose", "w5"), base("poll-1s", "w5")
	own.LastClosedS, own.AllCPU, other.LastClosedS = 3, 0.05, 4
	all = append(all, own, other)
	own, other = base("orderclose-all", "w6"), base("poll-1s", "w6")
	own.Queries, other.Queries = 30, 180
	all = append(all, own, other)
	own, other = base(onDisk, "w7"), base("redis", "w7")
	own.Acknowledged, own.P99, own.OverdueS, other.Acknowledged, other.Lost, other.P99 = 50, 2, 1.5, 51, 7, 1
	return append(all, own, other, result{System: "nats", Workload: "w1", LeftOut: "nats cannot be installed"})
}

func TestSummary_HasTheNumbersOfEachWorkload(t *testing.T) {
	all := some()
	for i := range all {
		if all[i].System == "redis" && all[i].P99 > 0 {
			all[i].Early = 2
		}
	}
	encoded := must.Get(json.Marshal(summarize(all)))(t)
	var got map[string]json.RawMessage
	must.Do(t, json.Unmarshal(encoded, &got))
	const lateness = `[{"early":0,"lost":0,"p50_ms":1,"p99_ms":3,"system":"orderclose"},{"early":2,"lost":0,"p50_ms":50,"p99_ms":100,"system":"redis"}]`
	for name, want := range map[string]string{
		"w1": lateness, "w3": lateness,
		"w2": `[{"drain_per_s":400000,"early":0,"lost":0,"system":"orderclose"},{"drain_per_s":100000,"early":0,"lost":0,"system":"redis"}]`,
		"w4": `[{"early":0,"gap_s":4,"lost":0,"system":"orderclose","victim":"server"},{"early":0,"gap_s":4,"lost":0,"system":"orderclose","victim":"worker"},` +
			`{"early":0,"gap_s":0.25,"lost":0,"system":"redis","victim":"server"},{"early":0,"gap_s":0.25,"lost":0,"system":"redis","victim":"worker"},` +
			`{"early":0,"gap_s":4,"lost":0,"system":"orderclose-3","victim":"leader"},{"early":0,"gap_s":0.25,"lost":0,"system":"redis-3","victim":"leader"}]`,
		"w5": `[{"last_closed_s":3,"system":"orderclose"},{"last_closed_s":4,"system":"poll-1s"}]`,
		"w6": `[{"client_idle_percent":0,"disk_mb":0,"queries_per_minute":30,"server_idle_percent":0,"system":"orderclose-all"},` +
			`{"client_idle_percent":0,"disk_mb":0,"queries_per_minute":180,"server_idle_percent":0,"system":"poll-1s"}]`,
		"w7": `[{"acknowledged":50,"early":0,"lost":0,"overdue_s":1.5,"p99_ms":2,"system":"orderclose-always"},` +
			`{"acknowledged":51,"early":2,"lost":7,"overdue_s":0,"p99_ms":1,"system":"redis"}]`,
		"left_out": `[{"system":"nats","why":"nats cannot be installed","workload":"w1"}]`,
	} {
		expect.That(t, string(got[name]) == want, "%s is\n%s\nwant\n%s", name, got[name], want)
	}
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
		if len(groups) != 1 || groups[0].median(p99) != row.p99 || groups[0].note() != row.note {
			t.Errorf("%d groups, p99 %g, note %q; want %g, %q", len(groups), groups[0].median(p99), groups[0].note(), row.p99, row.note)
		}
	}
	if g := grouped([]result{failed}); g[0].leftOut() != failed.LeftOut {
		t.Errorf("left out: %q", g[0].leftOut())
	}
}

func TestPage_SaysWhichAimsAreReachedAndWhy(t *testing.T) {
	all := some()
	p := page{groups: grouped(all), all: all}
	text := p.markdown()
	for _, want := range []string{
		"| W1, default: the lowest p99 | 3 | redis 100 | yes |",
		"| W2, default: the highest drain, and at least 300,000/s | 400,000 | redis 100,000 | yes |",
		"| 4 | redis 0.25 | no: ahead: redis (0.25), because Redis, MariaDB",
		"| 4 | redis-3 0.25 | no: above 3, because Kafka's controller elects leaders", "look for them; ahead: redis-3 (0.25)",
		"| W5: no slower than a poller | 3 | poll-1s 4 | yes |",
		"| 30 | poll-1s 180 | yes |",
		"and the lowest p99 after the return | 2 | none measured | not judged: nothing to compare with |",
		"- W1: nats cannot be installed (nats)",
		"## When a plain poller is the better choice",
	} {
		expect.That(t, strings.Contains(text, want), "the page has no %q", want)
	}
	data := p.data()
	for name, want := range map[string]string{
		"data/comparison-settings.csv": "redis,server,redis 1\n",
		resultsData:                    "redis,\"Redis sorted set, polled every 100 ms\",100,\"100,000\",100,0.25,0.25,,,,,,51,7,0,1,0,7,0\n",
		"data/comparison-w2.csv":       "redis,100000,0,0,0,0,0,0,0,0,50000,2,3,0,0,0,\n",
		"data/comparison-w5.csv":       "orderclose,0,3,3,3,500,0,0,\npoll-1s,0,4,4,4,,0,0,\n",
		"data/comparison-w7.csv":       "redis,51,0,7,0,0,0,1,0,0,\n",
		"data/comparison-w4.csv":       "redis,server,0.25,0,100,0,0,0,0,0,0,\n",
	} {
		expect.That(t, strings.Contains(data[name], want), "%s has no row %q:\n%s", name, want, data[name])
	}
	expect.That(t, !strings.Contains(text, "QUICK"), "the page speaks of short runs, but there are none")
	for i := range all {
		all[i].Quick = true
	}
	text = page{groups: grouped(all), all: all}.markdown()
	if strings.Count(text, "| not judged: QUICK |")+strings.Count(text, "| not measured |") != len(aims) {
		t.Errorf("short runs are judged:\n%s", text)
	}
}

// A way that loses messages, is early or is late may be ahead. Another one is listed, with the W4 of a worker only if it is ahead by more than a second.
func TestAims_CountWaysThatKeepWhatTheyAcceptAndArePunctual(t *testing.T) {
	row := func(system, workload string, change func(*result)) result {
		r := result{System: system, Workload: workload, Messages: 100, Cores: 2, Seconds: 10}
		change(&r)
		return r
	}
	crash := func(system, victim string, gap float64) result {
		return row(system, "w4", func(r *result) { r.Victim, r.GapS = victim, gap })
	}
	late := func(workload string, ms float64) func(system string) result {
		return func(system string) result { return row(system, workload, func(r *result) { r.P99 = ms }) }
	}
	for name, c := range map[string]struct {
		rows  []result
		ahead bool
	}{
		"durable and punctual":              {[]result{late("w1", 5)("redis")}, true},
		"lost in a crash":                   {[]result{late("w1", 5)("redis"), row("redis", "w4", func(r *result) { r.Victim, r.Lost = victimServer, 1 })}, false},
		"early":                             {[]result{late("w1", 5)("redis"), row("redis", "w3", func(r *result) { r.Early = 1 })}, false},
		"late in W3, and ahead in W1":       {[]result{late("w1", 5)("redis"), late("w3", 9000)("redis")}, true},
		"ahead in the drain":                {[]result{late("w1", 1000)("redis"), row("redis", "w2", func(r *result) { r.DrainPS = 900_000 })}, true},
		"ahead in the drain, and late":      {[]result{late("w1", 1001)("redis"), row("redis", "w2", func(r *result) { r.DrainPS = 900_000 })}, false},
		"ahead as W5 closes":                {[]result{row("poll-1s", "w5", func(r *result) { r.LastClosedS = 2 })}, true},
		"ahead in statements":               {[]result{row("poll-1s", "w6", func(r *result) { r.Queries = 4 })}, true},
		"a worker is back a second earlier": {[]result{crash("redis", victimWorker, 1)}, false},
		"a worker is back earlier":          {[]result{crash("redis", victimWorker, 0.9)}, true},
		"a leader is replaced earlier":      {[]result{crash("redis-3", victimLeader, 1.9)}, true},
	} {
		own := []result{
			late("w1", 10)("orderclose"), late("w3", 10)("orderclose"), row("orderclose", "w2", func(r *result) { r.DrainPS = 400_000 }),
			crash("orderclose", victimServer, 0.1), crash("orderclose", victimWorker, 2), crash("orderclose-3", victimLeader, 2),
			row("orderclose", "w5", func(r *result) { r.LastClosedS = 3 }), row("orderclose-all", "w6", func(r *result) { r.Queries = 100 }),
		}
		all := append(own, c.rows...)
		got := (page{groups: grouped(all), all: all}).aims()
		expect.That(t, strings.Contains(got, "| no: ahead: ") == c.ahead, "%s:\n%s", name, got)
	}
	slow := []result{crash("orderclose-3", victimLeader, 3.1)}
	if got := (page{groups: grouped(slow), all: slow}).aims(); !strings.Contains(got, "| 3.1 | none measured | no: above 3, because ") {
		t.Errorf("a gap above 3 s:\n%s", got)
	}
}

func TestAims_SayWhyAnyWayIsAhead(t *testing.T) {
	for _, a := range aims {
		expect.That(t, a.atLeast+a.atMost == 0 || a.bound != "", "no reason says why the bound of %s is missed", a.text)
		for _, s := range specs() {
			expect.That(t, reasonFor(a.workload, s.name) != "", "no reason says why %s is ahead in %s", s.name, a.text)
		}
	}
}

func TestReport_WritesPagePlotsAndREADME(t *testing.T) {
	root := t.TempDir()
	results := filepath.Join(root, "results.jsonl")
	for _, r := range some() {
		must.Do(t, appendResult(results, r))
	}
	must.Do(t, os.MkdirAll(filepath.Join(root, "docs", "images"), 0o755))
	must.Do(t, os.MkdirAll(filepath.Join(root, "docs", "data"), 0o755))
	readme := filepath.Join(root, "README.md")
	write := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(readme, []byte(text), 0o644))
	}
	write("before\n" + readmeBegin + "old\n" + readmeEnd + "after\n")
	args := []string{"-results", results, "-root", root}
	must.Do(t, runReport(args))
	text, _ := os.ReadFile(readme)
	if s := string(text); !strings.HasPrefix(s, "before\n"+readmeBegin+"- ") || !strings.HasSuffix(s, readmeEnd+"after\n") || strings.Contains(s, "old") {
		t.Errorf("README.md is\n%s", s)
	}
	for _, w := range allWorkloads {
		svg, err := os.Open(filepath.Join(root, "docs", "images", "peers-"+w+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		d := xml.NewDecoder(svg)
		for err == nil {
			_, err = d.Token()
		}
		if err != io.EOF {
			t.Errorf("%s: %v", svg.Name(), err)
		}
		svg.Close()
	}
	write("without marks\n")
	if err := runReport(args); err == nil {
		t.Error("a README.md without marks is accepted")
	}
}

func TestWays_HaveUniqueNamesAndMake(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range specs() {
		expect.That(t, !seen[s.name] && s.title != "" && s.make(run{Way: s.name, Servers: map[string]string{}}) != nil, "way %q", s.name)
		seen[s.name] = true
	}
	_, err := specsOf("redis nothing")
	expect.That(t, err != nil && strings.Contains(err.Error(), "rabbitmq-queues"), "an unknown way: %v", err)
}

func TestLevelFor_IsNeverShorter(t *testing.T) {
	for i, d := range rocketLevels {
		if levelFor(d) != i+1 || levelFor(d-1) != i+1 {
			t.Errorf("levels %d and %d for %v", levelFor(d), levelFor(d-1), d)
		}
	}
}
