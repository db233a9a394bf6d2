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

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orderclose/orderclose/internal/httpcall"
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

// Handler returns the handler of these routes:
//
//	GET /metrics         the metrics of Options.Registerer; absent unless the Registerer is also
//	                     a prometheus.Gatherer (the result of WrapRegistererWith is not)
//	GET /-/healthy       200 as long as the process answers
//	GET /-/ready         200 with the Hints, or 503 with the reasons (Ready); and which database
//	                     the process uses, if Servers.DSN names it
//	POST /-/reload       reads topics.yaml again: 200 with the changes, or 400 with the problems;
//	                     403 to a browser
//	GET /debug/pprof/…   profiles, if profiles is set
func (a *App) Handler(profiles bool) http.Handler {
	mux := http.NewServeMux()
	if a.gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(a.gatherer, promhttp.HandlerOpts{}))
	}
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", a.serveReady)
	mux.Handle("POST /-/reload", httpcall.RefuseBrowsers(http.HandlerFunc(a.serveReload)))
	if profiles {
		for name, profile := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.HandleFunc("GET /debug/pprof/"+name, byAddress(profile))
		}
	}
	return mux
}

func (a *App) serveReady(w http.ResponseWriter, _ *http.Request) {
	lines := a.ready.waiting.list()
	if len(lines) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		lines = []string{"ready"}
		for _, line := range a.ready.hints.list() {
			lines = append(lines, "without "+line)
		}
	}
	if database := a.database(); database != "" {
		lines = append(lines, "with database "+database)
	}
	fmt.Fprintln(w, strings.Join(lines, "\n"))
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
