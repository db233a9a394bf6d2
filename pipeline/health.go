package pipeline

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readiness collects what a process waits for, and hints at problems that do not stop it.
// The process is ready when it waits for nothing. The zero value is ready. It is safe for
// concurrent use.
type readiness struct {
	mu        sync.Mutex
	waiting   map[string]string        // reason by name
	hints     map[string]string        // reason by name
	hintFuncs map[string]func() string // functions that return the reason, by name
}

// wait adds something that the process waits for, with the reason.
func (r *readiness) wait(what, why string) { r.set(&r.waiting, what, why) }

// done removes what was added by wait.
func (r *readiness) done(what string) { r.unset(&r.waiting, what) }

// waitsFor lists what the process waits for, with the reasons, sorted by name.
func (r *readiness) waitsFor() []string { return r.list(&r.waiting) }

// hint adds something that is missing and that the process can work without, with the reason.
func (r *readiness) hint(what, why string) { r.set(&r.hints, what, why) }

// removeHint removes what was added by hint.
func (r *readiness) removeHint(what string) { r.unset(&r.hints, what) }

// hintFunc adds a function that is called for each list of hints. It returns the reason of the
// hint, or "" if there is none. The function must not block.
func (r *readiness) hintFunc(what string, why func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hintFuncs == nil {
		r.hintFuncs = map[string]func() string{}
	}
	r.hintFuncs[what] = why
}

// listHints lists what is missing and not required, with the reasons, sorted by name.
func (r *readiness) listHints() []string {
	r.mu.Lock()
	funcs := maps.Clone(r.hintFuncs)
	r.mu.Unlock()
	for what, why := range funcs {
		if reason := why(); reason != "" {
			r.hint(what, reason)
		} else {
			r.removeHint(what)
		}
	}
	return r.list(&r.hints)
}

func (r *readiness) set(of *map[string]string, what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *of == nil {
		*of = map[string]string{}
	}
	(*of)[what] = why
}

func (r *readiness) unset(of *map[string]string, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(*of, what)
}

func (r *readiness) list(of *map[string]string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(*of)) {
		all = append(all, what+": "+(*of)[what])
	}
	return all
}

// healthHandler serves the GET routes of App.Handler. Without a gatherer it has no /metrics.
// /-/healthy answers 200 whether the servers answer or not. /-/ready answers 503 with the reasons
// while the process waits for something, and otherwise 200 with a line for each hint. Both have a
// line with the database, unless it is "".
func healthHandler(g prometheus.Gatherer, ready *readiness, database string, profiles bool) http.Handler {
	mux := http.NewServeMux()
	if g != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	}
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		lines := ready.waitsFor()
		if len(lines) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			lines = []string{"ready"}
			for _, line := range ready.listHints() {
				lines = append(lines, "without "+line)
			}
		}
		if database != "" {
			lines = append(lines, "with database "+database)
		}
		fmt.Fprintln(w, strings.Join(lines, "\n"))
	})
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", byAddress(pprof.Index))
		mux.HandleFunc("GET /debug/pprof/cmdline", byAddress(pprof.Cmdline))
		mux.HandleFunc("GET /debug/pprof/profile", byAddress(pprof.Profile))
		mux.HandleFunc("GET /debug/pprof/symbol", byAddress(pprof.Symbol))
		mux.HandleFunc("GET /debug/pprof/trace", byAddress(pprof.Trace))
	}
	return mux
}

// byAddress serves requests whose Host is an IP address or localhost. A page of another site could
// otherwise read profiles under a host name of its own that resolves to the loopback.
func byAddress(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			http.Error(w, "profiles are served under an IP address or localhost only", http.StatusMisdirectedRequest)
			return
		}
		next(w, r)
	}
}
