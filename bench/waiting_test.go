package main

import (
	"os"
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

func TestCPUOf_IsUserAndSystemTimeForAnyProgramName(t *testing.T) {
	got, err := cpuOf("42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 9 0 123 456 789\n")
	if want := 1750 * time.Millisecond; err != nil || got != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "42 (a) S 1", "42 (a) S 1 42 42 0 -1 4194304 100 0 0 0 x 25 0"} {
		if _, err := cpuOf(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestUsedSoFar_MeasuresThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	u, err := usedSoFar(os.Getpid())
	if err != nil || u.peak < 1<<20 {
		t.Errorf("%+v, %v", u, err)
	}
}
