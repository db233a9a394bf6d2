package main

import (
	"strings"
	"testing"
	"time"
)

func TestWaitingReport_PrintsOneObject(t *testing.T) {
	r := waitingReport{1_000_000, time.Minute, watched{cpuPercent: 0.511, rssMB: 21.06, readMB: 2}, watched{cpuPercent: 0.83, rssMB: 48, readMB: 302, cpuSeconds: 1.2}}
	var out, tables strings.Builder
	if err := r.print(&out, &tables); err != nil {
		t.Fatal(err)
	}
	const want = `{"waiting":{"records":1000000,"bucket":"12h","seconds":60,"cpu_percent":0.83,"idle_cpu_percent":0.51,"rss_mb":48,"idle_rss_mb":21.1,"above_idle_mb":26.9,"read_mb":302,"idle_read_mb":2,"cpu_s":1.2,"idle_cpu_s":0}}` + "\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if !strings.Contains(tables.String(), "1000000 parked") {
		t.Errorf("the table:\n%s", tables.String())
	}
}
