package access

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

const (
	maxLogin = 16 << 10 // the largest body that a client without identity may send, in bytes
	maxNext  = 2000     // the longest path to which a login leads, in bytes
)

// login serves the login form. A console without a file of tokens has none.
func (g *Gate) login(w http.ResponseWriter, r *http.Request, peer netip.Addr) *Refusal {
	if g.tokens == nil {
		seeOther(w, g.home())
		return nil
	}
	if r.Method != http.MethodPost {
		next := g.safeNext(r.URL.Query().Get("next"))
		if _, ok := g.tokens.signedIn(r); ok {
			g.afterLogin(w, next)
			return nil
		}
		g.o.Login(w, r, LoginPage{Status: http.StatusOK, Next: next})
		return nil
	}
	if refusal := readBody(w, r, maxLogin); refusal != nil {
		return refusal
	}
	if r.ParseForm() != nil {
		return refused(BadForm)
	}
	next := g.safeNext(r.PostForm.Get("next"))
	one, refusal := g.tokens.check(strings.TrimSpace(r.PostForm.Get("token")), peer)
	if refusal != nil {
		setRetryHeaders(w, refusal, g.challenge())
		g.o.Login(w, r, LoginPage{refusal.Status, refusal.Reason, next})
		return nil
	}
	g.endSessions(r)
	g.setCookie(w, r, g.tokens.sessions.begin(one.token))
	g.o.Logger.Info("console login", "who", one.name, "role", one.role, "address", peer)
	g.afterLogin(w, next)
	return nil
}

func (g *Gate) afterLogin(w http.ResponseWriter, next string) {
	if next == "" {
		next = g.home()
	}
	seeOther(w, next)
}

// logout ends the session. Browsers keep passwords and the user of a proxy themselves.
func (g *Gate) logout(w http.ResponseWriter, r *http.Request, i Identity) *Refusal {
	if r.Method != http.MethodPost {
		return refused(WrongMethod)
	}
	if i.Session {
		g.endSessions(r)
		g.setCookie(w, r, "")
		g.o.Logger.Info("console logout", "who", i.Name, "address", i.Address)
		seeOther(w, g.o.Settings.BasePath+"/login")
		return nil
	}
	seeOther(w, g.home())
	return nil
}

// endSessions ends the sessions whose cookies the browser sends.
func (g *Gate) endSessions(r *http.Request) {
	for _, cookie := range r.CookiesNamed(cookieName(r)) {
		g.tokens.sessions.end(cookie.Value)
	}
}

// toLogin leads a page without identity to the login form. A link on a page of another site, such
// as a chat, comes without the cookie, because it is SameSite=Strict: then the browser gets a page
// that goes to the login form itself, which sends the cookie, and leads back if there is a session.
func (g *Gate) toLogin(w http.ResponseWriter, r *http.Request) {
	login, next := g.o.Settings.BasePath+"/login", ""
	if r.Method != http.MethodPost {
		next = g.safeNext(r.URL.RequestURI())
	}
	if next != "" && next != g.home() {
		login += "?next=" + url.QueryEscape(next)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); r.Method == http.MethodGet && (site == "cross-site" || site == "same-site") {
		w.Header().Set("Refresh", "0; url="+login)
		g.o.Login(w, r, LoginPage{Status: http.StatusOK, Next: next})
		return
	}
	seeOther(w, login)
}

func (g *Gate) home() string { return g.o.Settings.BasePath + "/" }

// safeNext returns the path and query of next if they are those of a page of this console, and
// "" otherwise. A link to the login form must not lead to another site after the login.
func (g *Gate) safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > maxNext || strings.HasPrefix(next, "//") || u.Scheme != "" || u.Fragment != "" {
		return ""
	}
	r := &http.Request{URL: u}
	if at := g.below(r); !canonical(r) || at == "" || at == "/login" || at == "/logout" || strings.ContainsRune(u.Path, '\\') { // browsers read \ as /
		return ""
	}
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + u.RawQuery
}

// seeOther leads to a path of this console.
func seeOther(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
}
