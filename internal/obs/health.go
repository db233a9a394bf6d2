package obs

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness collects what a process still waits for. It is ready when nothing
// is left. The zero value is ready. Safe for concurrent use.
type Readiness struct {
	mu      sync.Mutex
	waiting map[string]string // by what: why
}

// Wait says that something is not there yet, and why.
func (r *Readiness) Wait(what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[string]string{}
	}
	r.waiting[what] = why
}

// Done says that it is there.
func (r *Readiness) Done(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, what)
}

// Waiting lists what is not there, each with its reason, in a fixed order.
func (r *Readiness) Waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r.waiting)) {
		all = append(all, what+": "+r.waiting[what])
	}
	return all
}

// Handler serves /metrics, /-/healthy (the process answers; servers that are
// away do not count), /-/ready (503 with the reasons while something is missing)
// and, if profiles is set, /debug/pprof.
func Handler(g prometheus.Gatherer, ready *Readiness, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		waiting := ready.Waiting()
		if len(waiting) == 0 {
			fmt.Fprintln(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, line := range waiting {
			fmt.Fprintln(w, line)
		}
	})
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}
