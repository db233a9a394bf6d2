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

// Readiness collects what a process still waits for, and what it works without. It is
// ready when it waits for nothing. The zero value is ready. Safe for concurrent use.
type Readiness struct {
	mu      sync.Mutex
	waiting map[string]string // by what: why
	hints   map[string]string // the same of what the process works without
	asked   map[string]func() string
}

// Wait says that something is not there yet, and why.
func (r *Readiness) Wait(what, why string) { r.set(&r.waiting, what, why) }

// Done says that it is there.
func (r *Readiness) Done(what string) { r.unset(&r.waiting, what) }

// Waiting lists what is not there, each with its reason, in a fixed order.
func (r *Readiness) Waiting() []string { return r.list(&r.waiting) }

// Hint says that the process works without something, and why it is missing.
func (r *Readiness) Hint(what, why string) { r.set(&r.hints, what, why) }

// Unhint says that it is there.
func (r *Readiness) Unhint(what string) { r.unset(&r.hints, what) }

// HintBy has a function say, whenever somebody looks, why the process works without
// something; "": it is there. The function must not block.
func (r *Readiness) HintBy(what string, why func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = map[string]func() string{}
	}
	r.asked[what] = why
}

// Hints lists what the process works without, as Waiting does.
func (r *Readiness) Hints() []string {
	r.mu.Lock()
	asked := maps.Clone(r.asked)
	r.mu.Unlock()
	for what, why := range asked {
		if said := why(); said != "" {
			r.Hint(what, said)
		} else {
			r.Unhint(what)
		}
	}
	return r.list(&r.hints)
}

func (r *Readiness) set(of *map[string]string, what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *of == nil {
		*of = map[string]string{}
	}
	(*of)[what] = why
}

func (r *Readiness) unset(of *map[string]string, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(*of, what)
}

func (r *Readiness) list(of *map[string]string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(*of)) {
		all = append(all, what+": "+(*of)[what])
	}
	return all
}

// Handler serves /metrics, /-/healthy (the process answers; servers that are
// away do not count), /-/ready (503 with the reasons while it waits for something; else
// 200, with a line for each thing that it works without)
// and, if profiles is set, /debug/pprof.
func Handler(g prometheus.Gatherer, ready *Readiness, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		waiting := ready.Waiting()
		if len(waiting) == 0 {
			fmt.Fprintln(w, "ready")
			for _, line := range ready.Hints() {
				fmt.Fprintln(w, "without "+line)
			}
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
