package obs

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// RegisterRuntime adds the metrics of the Go runtime (go_…) and of the process
// (process_…: memory, CPU time, open files) to r. A registry that has these metrics
// already, such as the registry of an embedding program, stays unchanged.
func RegisterRuntime(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := r.Register(c)
		if _, has := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !has {
			return err
		}
	}
	return nil
}
