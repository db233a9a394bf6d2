package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

func TestReport_PrintsOneObject(t *testing.T) {
	r := report{
		throughput: []drained{{6, map[string]turn{
			sideRelay: {2000.4, 0.25, 37.06}, sideCopy: {1000, 1, 70}, sideReaderWriter: {50, 4, 24}, sideFranz: {900, 1, 140},
		}}},
		lateness: []lateness{{rate: 1000, p50: 850 * time.Microsecond, p99: 2 * time.Millisecond, p999: 25 * time.Millisecond}},
		cold:     lateness{rate: 1000, cold: true, p99: 9 * time.Millisecond},
		burst:    burst{records: 7, last: 130 * time.Millisecond},
	}
	var out, tables strings.Builder
	if err := r.print(&out, &tables); err != nil {
		t.Fatal(err)
	}
	const want = `{"throughput":[{"batch":6,"relay_rps":2000,"copy_rps":1000,"reader_writer_rps":50,"franz_rps":900,"cpu_s_per_million":0.25,"rss_mb":37.1}],` +
		`"lateness":[{"rate":1000,"p50_ms":0.85,"p99_ms":2,"p999_ms":25,"early":0}],"lateness_cold":{"rate":1000,"p50_ms":0,"p99_ms":9,"p999_ms":0,"early":0},"burst":{"records":7,"last_ms":130}}`
	if have := strings.TrimSpace(out.String()); have != want {
		t.Errorf("printed\n%s\nwant\n%s", have, want)
	}
	if !strings.Contains(tables.String(), "2.00 x") {
		t.Errorf("the table does not say how the relay compares:\n%s", tables.String())
	}
	d := json.NewDecoder(strings.NewReader(out.String()))
	var object any
	if err := d.Decode(&object); err != nil || d.Decode(&object) != io.EOF {
		t.Errorf("not exactly one object: %v", err)
	}
}
