package pipeline

import (
	"cmp"
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
// The process is ready when it waits for nothing. The zero value is ready.
type readiness struct {
	waiting, hints reasons
}

// reasons say why things are missing. The zero value has none. It is safe for concurrent use.
type reasons struct {
	mu sync.Mutex
	by map[string]func() string // by name; "": it is not missing now
}

// add adds something that is missing, or replaces its reason.
func (r *reasons) add(what, why string) {
	r.addFunc(what, func() string { return cmp.Or(why, "unknown") })
}

// addFunc is add for a reason that changes: why is called for each list, and must not block.
func (r *reasons) addFunc(what string, why func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]func() string{}
	}
	r.by[what] = why
}

// remove removes what was added.
func (r *reasons) remove(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, what)
}

// list lists what is missing, with the reasons, sorted by name.
func (r *reasons) list() (all []string) {
	r.mu.Lock()
	by := maps.Clone(r.by)
	r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(by)) {
		if why := by[what](); why != "" {
			all = append(all, what+": "+why)
		}
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
		lines := ready.waiting.list()
		if len(lines) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			lines = []string{"ready"}
			for _, line := range ready.hints.list() {
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
