package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/text"
)

// readiness collects what a process waits for, and hints at problems that do not stop it.
// The process is ready when it waits for nothing. The zero value is ready.
type readiness struct {
	waiting, hints reasons
}

// reasons say why things are missing. The zero value has none. It is safe for concurrent use.
type reasons struct {
	mu sync.Mutex
	by map[string]reason // by name
}

type reason struct {
	why   func() string // "": it is not missing now
	since time.Time     // when it was added
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
		r.by = map[string]reason{}
	}
	since := r.by[what].since
	if since.IsZero() {
		since = time.Now()
	}
	r.by[what] = reason{why, since}
}

// remove removes what was added.
func (r *reasons) remove(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, what)
}

// since returns since when it is missing; ok is false if it is not.
func (r *reasons) since(what string) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.by[what]
	return known.since, ok
}

// list lists what is missing, with the reasons, sorted by name.
func (r *reasons) list() (all []string) {
	r.mu.Lock()
	by := maps.Clone(r.by)
	r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(by)) {
		if why := by[what].why(); why != "" {
			all = append(all, what+": "+why)
		}
	}
	return all
}

// Handler returns the handler of these routes:
//
//	GET /metrics         the metrics of Options.Registerer, as OpenMetrics if the client accepts it; absent unless the Registerer is also
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
		mux.Handle("GET /metrics", promhttp.HandlerFor(a.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
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
	fmt.Fprintln(text.HarmlessWriter{W: w}, strings.Join(lines, "\n"))
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

// Limits of the listener of metrics and health. A client sends a few hundred bytes and
// reads the answer at once. A slower client must not keep a connection, and with it a file
// descriptor.
const (
	maxHeaderBytes = 16 << 10
	headersWithin  = 5 * time.Second
	requestWithin  = 10 * time.Second // headers and body
	// answerWithin exceeds the 30 s that a CPU profile takes by default.
	answerWithin = 2 * time.Minute
	// idleWithin exceeds the usual minute between two scrapes.
	idleWithin = 3 * time.Minute
)

// Serve serves HTTP on the address listen, host:port, until ctx ends, and then returns nil. Requests in
// flight have one second to finish. The handler is usually App.Handler. Serve returns an error if the
// address cannot be used. A slow client is cut off: headers 5 s, request 10 s, answer 2 minutes.
func Serve(ctx context.Context, listen string, handler http.Handler, logger *slog.Logger) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("%w: listen on another host:port; of the command orderclose, set %s", err, environ.EnvListen)
	}
	logger.Info("serving metrics and health", "address", "http://"+listener.Addr().String())
	return ServeOn(ctx, listener, handler, logger)
}

// ServeOn is Serve on a listener, which it closes. logger gets what net/http itself reports, such as TLS
// handshakes that fail.
func ServeOn(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin, //mutant:idle-client-kept
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Shutdown(ctx)
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended // the requests in flight
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", listener.Addr(), err)
	}
	return nil
}
