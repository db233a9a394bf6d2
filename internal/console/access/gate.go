package access

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// Options for a Gate. Settings and Refuse are required.
type Options struct {
	Settings config.Console

	// Refuse writes the response to a request that is refused, with the status of the Refusal.
	// Headers that the status needs are set.
	Refuse func(w http.ResponseWriter, r *http.Request, refusal Refusal)

	// Public has paths below the base path that need no identity, such as /static/. A path that
	// ends with a slash includes all paths below it.
	Public []string

	Logger *slog.Logger // default: discard
}

// Gate checks the requests to a console. Create it with New. It is safe for concurrent use.
type Gate struct {
	o     Options
	hosts map[string]bool
	file  *webFile
	// identify returns the user of a request, or why there is none.
	identify func(r *http.Request, peer netip.Addr) (Identity, *Refusal)
	origin   http.CrossOriginProtection
}

// New returns a Gate, or an error if the settings are not safe, or if their file is not valid.
func New(o Options) (*Gate, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{o: o, hosts: acceptedHosts(o.Settings)}
	var err error
	if g.file, err = openWebFile(o.Settings, o.Logger); err != nil {
		return nil, err
	}
	switch file := g.file.get(); {
	case o.Settings.UserHeader != "":
		g.identify = g.byProxy
	case len(file.users) > 0:
		g.identify = newPasswords(o.Settings, g.file, o.Logger).identify
	case file.certificates:
		g.identify = g.byCertificate
	default:
		g.identify = nobody
	}
	return g, nil
}

// TLS returns the configuration of the listener, or nil if the console has no TLS of its own. A changed
// file holds for the next connection.
func (g *Gate) TLS() *tls.Config {
	if g.file.get().tls == nil {
		return nil
	}
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.file.get().tls, nil }}
}

// Wrap returns the handler of the whole console. Paths of requests have the base path, for next
// too. next gets requests of users with an identity, which From returns, and requests of public
// paths; bodies are complete and at most MaxBody long. next may replace the header Cache-Control,
// such as for static files. The context of a request ends after 5 minutes.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return g.logged(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.setHeaders(w, r)
		if r.Method == http.MethodPost {
			// A ResponseWriter that cannot set a deadline, as in a test, has no connection to protect.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if r, refusal := g.admit(w, r, next); refusal != nil {
			g.refuse(w, r, refusal)
		}
	}))
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
	if g.public(g.below(r)) {
		if refusal := readBody(w, r, maxPublic); refusal != nil {
			return r, refusal
		}
		next.ServeHTTP(w, r)
		return r, nil
	}
	identity, refusal := g.identify(r, peer)
	if refusal != nil {
		return r, refusal
	}
	if session := identity.session; session != nil {
		identity.session = nil
		http.SetCookie(w, session)
	}
	identity.Address, identity.MayAct = peer, identity.Role == Operator
	r = r.WithContext(context.WithValue(r.Context(), identityKey{}, identity))
	if refusal := readBody(w, r, MaxBody); refusal != nil {
		return r, refusal
	}
	if r.Method == http.MethodPost && g.isAPI(r) && !sendsJSON(r) {
		return r, notJSON
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxRequest)
	defer cancel()
	next.ServeHTTP(w, r.WithContext(ctx))
	return r, nil
}

// Action returns the handler of an action: a request that changes data. It refuses users who are
// not operators, and everybody if actions are off. Other POST requests, such as those of a search
// form, need no Action.
func (g *Gate) Action(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal := g.checkAction(r); refusal != nil {
			i := From(r.Context())
			g.o.Logger.Warn("console action refused", "who", i.Name, "address", i.Address, "path", loggedPath(r.URL.Path), "reason", refusal.Reason)
			g.refuse(w, r, refusal)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) checkAction(r *http.Request) *Refusal {
	i := From(r.Context())
	switch {
	case r.Method != http.MethodPost:
		return wrongMethod
	case i.Role != Operator: //mutant:viewer-acts
		return notOperator
	}
	return nil
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	switch refusal.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="orderclose", charset="UTF-8"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
	told := *refusal
	told.API = g.isAPI(r)
	g.o.Refuse(w, r, told)
}

// contentPolicy lets pages use style, images, scripts, data and forms of this console only, and
// nothing inline. No page may show the console in a frame.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; worker-src 'self'; connect-src 'self'; " +
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
	if g.encrypted(r) && !onLoopback(r.Host) {
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
