package pipeline

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRegisterRuntime_MayBeCalledTwice(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 {
		if err := registerRuntime(r); err != nil {
			t.Fatal(err)
		}
	}
	_, body := get(t, healthHandler(r, &readiness{}, false), "/metrics")
	for _, want := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "process_open_fds ", "process_cpu_seconds_total "} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
}
