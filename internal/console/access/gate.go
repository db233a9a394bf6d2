package access

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/orderclose/orderclose/internal/environ"
)

// Options for a Gate. All are required.
type Options struct {
	Settings environ.Console

	// Refuse writes the response to a request that is refused, with the status of the Refusal.
	// Headers that the status needs are set.
	Refuse func(w http.ResponseWriter, r *http.Request, refusal Refusal)

	Logger *slog.Logger
}

// Gate checks the requests to a console. Create it with New. It is safe for concurrent use.
type Gate struct {
	o      Options
	hosts  map[string]bool
	origin http.CrossOriginProtection
}

// New returns a Gate, or an error if the settings are not safe.
func New(o Options) (*Gate, error) {
	return &Gate{o: o, hosts: acceptedHosts(o.Settings)}, o.Settings.Check()
}

// Wrap returns the handler of the whole console. Paths of requests have the base path, for next
// too. next gets requests of users with an identity, which From returns, and those of public
// files; bodies are complete and at most MaxBody long. next may replace the header Cache-Control,
// such as for static files. The context of a request ends after 5 minutes.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.setHeaders(w, r)
		if r.Method == http.MethodPost {
			// A ResponseWriter that cannot set a deadline, as in a test, has no connection to protect.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if r, refusal := g.admit(w, r, next); refusal != nil {
			g.refuse(w, r, refusal)
		}
	})
}

// admit checks a request, and passes it on. It returns a Refusal instead if a check fails.
func (g *Gate) admit(w http.ResponseWriter, r *http.Request, next http.Handler) (*http.Request, *Refusal) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return r, wrongMethod
	}
	if !canonical(r) {
		return r, wrongPath
	}
	if !g.hosts[hostOf(r.Host)] { //mutant:any-host-answered
		return r, wrongHost
	}
	peer := peerOf(r)
	if refusal := g.checkPeer(r, peer); refusal != nil {
		return r, refusal
	}
	if g.origin.Check(r) != nil { //mutant:other-sites-accepted
		return r, otherSite
	}
	if g.public(r) {
		next.ServeHTTP(w, r)
		return r, nil
	}
	identity, refusal := g.identify(r, peer)
	if refusal != nil {
		return r, refusal
	}
	identity.Address = peer
	r = r.WithContext(context.WithValue(r.Context(), identityKey{}, identity))
	if refusal := readBody(w, r); refusal != nil {
		return r, refusal
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxRequest)
	defer cancel()
	next.ServeHTTP(w, r.WithContext(ctx))
	return r, nil
}

// Action returns the handler of an action: a request that changes data. It refuses users who are
// not operators. Other POST requests, such as those of a search form, need no Action.
func (g *Gate) Action(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal := checkAction(r); refusal != nil {
			i := From(r.Context())
			g.o.Logger.Warn("console action refused", "who", i.Name, "address", i.Address, "reason", refusal.Reason)
			g.refuse(w, r, refusal)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkAction(r *http.Request) *Refusal {
	switch {
	case r.Method != http.MethodPost:
		return wrongMethod
	case From(r.Context()).Role != Operator: //mutant:viewer-acts
		return notOperator
	}
	return nil
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	if refusal.Status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
	g.o.Refuse(w, r, *refusal)
}

// contentPolicy lets pages use style, images, scripts, data and forms of this console only, and
// nothing inline. No page may show the console in a frame.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// strictTransport makes browsers use TLS for a day after each visit. It is short because it holds
// for every port of the host, and other services there may have no TLS.
const strictTransport = "max-age=86400"

func (g *Gate) setHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	// With no-referrer browsers would send the header Origin as null, which reads as another site.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if isProxy(g.o.Settings, peerOf(r)) && !onLoopback(r.Host) { // the proxy terminates TLS
		h.Set("Strict-Transport-Security", strictTransport)
	}
}

// onLoopback reports whether a Host header names the loopback, where other programs that are
// developed on the machine listen without TLS.
func onLoopback(header string) bool {
	host := hostOf(header)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
