package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// Options for a Gate. Settings is required, Login if the settings name a file of tokens.
type Options struct {
	Settings config.Console

	// Login writes the page with the login form, with the status of the page.
	Login func(w http.ResponseWriter, r *http.Request, page LoginPage)

	// Refuse writes the response to a request that is refused, with the status of the Refusal.
	// Headers that the status needs are set. Default: the text of the Refusal; for the JSON API
	// {"error": {"reason": …, "message": …}}.
	Refuse func(w http.ResponseWriter, r *http.Request, refusal Refusal)

	// Public has paths below the base path that need no identity, such as /static/. A path that
	// ends with a slash includes all paths below it.
	Public []string

	Logger *slog.Logger // default: discard
}

// LoginPage is what a login form shows. The form sends a POST to /login below the base path with
// the fields token and next.
type LoginPage struct {
	Status int    // of the response
	Reason Reason // why the last login failed; "": no login failed
	Next   string // value of the field next: a path of this console, or ""
}

// Gate checks the requests to a console. Create it with New. It is safe for concurrent use.
type Gate struct {
	o      Options
	hosts  map[string]bool
	method method
	tokens *tokens // nil: the method is another one
	origin http.CrossOriginProtection
}

// method finds the user of a request.
type method interface {
	// identify returns the user, or why there is none.
	identify(r *http.Request, peer netip.Addr) (user, *Refusal)
}

// user is a user whose identity is known.
type user struct {
	name    string
	role    Role
	session string // the value of the session cookie; "": there is no session
}

// New returns a Gate, or an error if the settings are not safe, or if a file of them is not valid.
func New(o Options) (*Gate, error) {
	if err := o.Settings.Check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Refuse == nil {
		o.Refuse = writeRefusal
	}
	g := &Gate{o: o, hosts: acceptedHosts(o.Settings)}
	var err error
	switch s := o.Settings; {
	case s.TokensFile != "":
		if o.Login == nil {
			return nil, errors.New("access: Options need Login for a file of tokens")
		}
		g.tokens, err = newTokens(s, o.Logger)
		g.method = g.tokens
	case s.PasswordsFile != "":
		g.method, err = newPasswords(s, o.Logger)
	case s.UserHeader != "":
		g.method = proxyHeader{s}
	default:
		g.method = nobody{}
	}
	if err != nil {
		return nil, err
	}
	return g, nil
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
		return r, refused(WrongMethod)
	}
	if !canonical(r) {
		return r, refused(WrongPath)
	}
	if !g.hosts[hostOf(r.Host)] {
		return r, refused(WrongHost)
	}
	peer := peerOf(r)
	if refusal := g.checkPeer(r, peer); refusal != nil {
		return r, refusal
	}
	if g.origin.Check(r) != nil {
		return r, refused(OtherSite)
	}
	at := g.below(r)
	switch {
	case g.public(at):
		if refusal := readBody(w, r, maxLogin); refusal != nil {
			return r, refusal
		}
		next.ServeHTTP(w, r)
		return r, nil
	case at == "/login":
		return r, g.login(w, r, peer)
	}
	u, refusal := g.method.identify(r, peer)
	if refusal != nil {
		return r, refusal
	}
	identity := g.identityOf(u, peer)
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, visit{identity, g.isAPI(r)}))
	if refusal := readBody(w, r, MaxBody); refusal != nil {
		return r, refusal
	}
	if r.Method == http.MethodPost && g.isAPI(r) && !sendsJSON(r) {
		return r, refused(NotJSON)
	}
	if at == "/logout" {
		return r, g.logout(w, r, identity)
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
		return refused(WrongMethod)
	case !g.o.Settings.Actions:
		return refused(ActionsOff)
	case i.Role != Operator:
		return refused(NotOperator)
	}
	return nil
}

// refuse answers with a Refusal. A page that needs a login leads to the form.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	if g.tokens != nil && refusal.Reason == NotSignedIn && !g.isAPI(r) && !wantsEvents(r) {
		g.toLogin(w, r)
		return
	}
	refusal.API = g.isAPI(r)
	setRetryHeaders(w, refusal, g.challenge())
	g.o.Refuse(w, r, *refusal)
}

// challenge returns the header WWW-Authenticate: how to identify oneself.
func (g *Gate) challenge() string {
	if g.tokens != nil {
		return `Bearer realm="orderclose"`
	}
	return `Basic realm="orderclose", charset="UTF-8"`
}

// setRetryHeaders sets the headers that a status needs.
func setRetryHeaders(w http.ResponseWriter, refusal *Refusal, challenge string) {
	switch refusal.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", challenge)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
}
