package pipeline

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestNew_ItsOwnRegistryHasTheRuntimeAndTheProcess(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}}))(t)
	defer a.Close()
	_, body := get(t, a.Handler(false), "/metrics")
	for _, want := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "process_open_fds ", "process_cpu_seconds_total "} {
		expect.That(t, strings.Contains(body, "\n"+want), "no %s", want)
	}
}

// The program registers them before or after New, under labels of its own.
func TestNew_LeavesTheRuntimeToAProgramWithARegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector())
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, r)}))(t)
	defer a.Close()
	r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
