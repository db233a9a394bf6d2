package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsoleReport_PrintsOneObject(t *testing.T) {
	some := durations{time.Millisecond, 2 * time.Millisecond, 9 * time.Millisecond}
	r := consoleReport{
		waiting: 1_000_000, letters: 100_000, pages: []timedPage{{"now", some, some, some}}, renewed: some, read: 200_000,
		traffic: []traffic{{"orderclose status", 600, 5_000_000}, {"now, first view", 1500, 7_000_000}},
		none:    openCost{0.126, 4, 50}, open: openCost{1.5, 6.04, 51.26},
		without: []lateness{{p50: time.Millisecond, p99: 4 * time.Millisecond, worst: 9 * time.Millisecond}},
		with:    []lateness{{p50: time.Millisecond, p99: 6 * time.Millisecond, worst: 8 * time.Millisecond, early: 1}},
	}
	var out, tables strings.Builder
	if err := r.print(&out, &tables); err != nil {
		t.Fatal(err)
	}
	const want = `{"waiting":1000000,"dead_letters":100000,` +
		`"pages":[{"page":"now","cold_p50_ms":2,"cold_max_ms":9,"warm_p50_ms":2,"warm_max_ms":9,"again_p50_ms":2,"again_max_ms":9}],` +
		`"now_renewed":{"p50_ms":2,"p99_ms":9,"max_ms":9},"order_records_read":200000,` +
		`"brokers":[{"what":"orderclose status","requests":600,"bytes":5000000,"requests_by_status":1},{"what":"now, first view","requests":1500,"bytes":7000000,"requests_by_status":2.5}],` +
		`"no_page_open":{"cpu_percent":0.13,"broker_cpu_percent":4,"rss_mb":50},"now_open":{"cpu_percent":1.5,"broker_cpu_percent":6.04,"rss_mb":51.3},` +
		`"lateness_without_console":{"p50_ms":1,"p99_ms":4,"max_ms":9,"early":0},"lateness_with_console":{"p50_ms":1,"p99_ms":6,"max_ms":8,"early":1},"lateness_p99_ratio":1.5}` + "\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	for _, part := range []string{"orderclose status", "reads 200000 records", "Now open"} {
		if !strings.Contains(tables.String(), part) {
			t.Errorf("the tables lack %q:\n%s", part, tables.String())
		}
	}
}

func TestConsolePage_IsNotCompleteWithoutAnAnswer(t *testing.T) {
	p := consolePage{has: []string{"<svg", "<table"}}
	for body, want := range map[string]string{
		"<svg><table>":                  "",
		"<svg>":                         "<table",
		`<svg><table><p class="away">?`: "an answer of a server",
	} {
		if got := p.missing(body); got != want {
			t.Errorf("missing in %s: %q, want %q", body, got, want)
		}
	}
}

func TestMetadataProxy_CountsRequestsAndBytesOfBothDirections(t *testing.T) {
	p, err := newMetadataProxy(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.add(10, int16(kmsg.Fetch))
	before := p.count()
	for range 2 {
		p.add(100, int16(kmsg.ListOffsets))
		p.add(50, -1) // a response
	}
	if got := p.count().minus(before); got.requests() != 2 || got.String() != "2 requests, 300 bytes: 2 ListOffsets" {
		t.Errorf("counted %v", got)
	}
	if got := before.String(); got != "1 requests, 10 bytes: 1 Fetch" {
		t.Errorf("counted %v before", got)
	}
}
