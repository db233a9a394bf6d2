package access_test

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/testkit"
)

// The tokens of the rig's users.
const (
	annsToken = "token-of-ann-the-operator"
	vicsToken = "token-of-vic-the-viewer"
)

// line returns a line of a file of tokens.
func line(name, role, token string) string {
	return fmt.Sprintf("%s %s sha256:%x\n", name, role, sha256.Sum256([]byte(token)))
}

// rig is a console with a Gate.
type rig struct {
	t       *testing.T
	gate    *access.Gate
	handler http.Handler
	dir     string // has the files of the settings
	log     *testkit.LogBuffer

	reached  string          // the handler that the last request reached; "": none
	identity access.Identity // of that request
	page     access.LoginPage
}

// newRig returns a console on the loopback. change may change the settings.
func newRig(t *testing.T, change func(r *rig, s *config.Console)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &testkit.LogBuffer{}}
	s := config.Console{Listen: "127.0.0.1:9465"}
	if change != nil {
		change(r, &s)
	}
	var err error
	r.gate, err = access.New(access.Options{
		Settings: s,
		Login: func(w http.ResponseWriter, q *http.Request, page access.LoginPage) {
			r.page = page
			w.WriteHeader(page.Status)
			fmt.Fprint(w, "the login form")
		},
		Public: []string{"/static/", "/language"},
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.Handler{
		"/":                    r.handle("page"),
		"/static/":             r.handle("static"),
		"POST /language":       r.handle("language"),
		"POST /order":          r.handle("search"),
		"/plans":               r.gate.Action(r.handle("action")),
		"POST /api/v1/":        r.handle("api"),
		"GET /api/v1/":         r.handle("api"),
		"POST /api/v1/actions": r.gate.Action(r.handle("api action")),
	} {
		mux.Handle(pattern, handler)
	}
	r.handler = r.gate.Wrap(http.StripPrefix(s.BasePath, mux))
	return r
}

func (r *rig) handle(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.reached, r.identity = name, access.From(q.Context())
		fmt.Fprint(w, name)
	})
}

// The identities of a rig.

func anonymous(*rig, *config.Console) {}

func withTokens(r *rig, s *config.Console) {
	s.TokensFile = r.write("tokens", line("ann", "operator", annsToken)+line("vic", "viewer", vicsToken))
	s.Actions = true
}

func withPasswords(r *rig, s *config.Console) {
	s.PasswordsFile = r.write("passwords", "ann:"+hash("secret of ann")+"\nvic:"+hash("secret of vic")+"\n")
	s.Operators, s.Actions = []string{"ann"}, true
}

func withProxy(_ *rig, s *config.Console) {
	s.UserHeader, s.Operators, s.Actions = "X-Forwarded-User", []string{"ann"}, true
	s.Proxies = prefixes("10.0.0.7/32", "127.0.0.9/32")
}

func hash(password string) string {
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		panic(err)
	}
	return string(h)
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func (r *rig) write(name, text string) (path string) {
	r.t.Helper()
	path = filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// request is a request to a rig. The zero value of each field is the usual one.
type request struct {
	method, path string
	host         string // default: 127.0.0.1:9465
	from         string // default: 127.0.0.1:50000
	tls          bool
	header       map[string]string
	form         url.Values
	body         string
	cookies      []*http.Cookie
}

// do sends a request and returns the response.
func (r *rig) do(q request) *http.Response {
	r.t.Helper()
	r.reached, r.identity, r.page = "", access.Identity{}, access.LoginPage{}
	body := q.body
	if q.form != nil {
		body = q.form.Encode()
	}
	if q.method == "" {
		q.method = "GET"
	}
	if q.path == "" {
		q.path = "/"
	}
	h := httptest.NewRequest(q.method, q.path, strings.NewReader(body))
	h.Host, h.RemoteAddr = "127.0.0.1:9465", "127.0.0.1:50000"
	if q.host != "" {
		h.Host = q.host
	}
	if q.from != "" {
		h.RemoteAddr = q.from
	}
	if q.tls {
		h.TLS = &tls.ConnectionState{}
	}
	if q.form != nil {
		h.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range q.header {
		h.Header.Set(name, value)
	}
	for _, c := range q.cookies {
		h.AddCookie(c)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, h)
	return w.Result()
}

// login signs in with a token and returns the cookies.
func (r *rig) login(token string) []*http.Cookie {
	r.t.Helper()
	resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {token}}})
	if resp.StatusCode != http.StatusSeeOther {
		r.t.Fatalf("the login answers %s, reason %q", resp.Status, r.page.Reason)
	}
	return resp.Cookies()
}

// user is how a user of a rig sends requests.
type user struct {
	role    access.Role
	from    string
	header  map[string]string
	cookies []*http.Cookie
}

func (u user) request(q request) request {
	q.from, q.cookies = u.from, u.cookies
	header := map[string]string{}
	for name, value := range u.header {
		header[name] = value
	}
	for name, value := range q.header {
		header[name] = value
	}
	q.header = header
	return q
}

// users are all ways to be a user.
func users() map[string]func(t *testing.T) (*rig, user) {
	session := func(token string, role access.Role) func(*testing.T) (*rig, user) {
		return func(t *testing.T) (*rig, user) {
			r := newRig(t, withTokens)
			return r, user{role: role, cookies: r.login(token)}
		}
	}
	header := func(identity func(*rig, *config.Console), role access.Role, from, name, value string) func(*testing.T) (*rig, user) {
		return func(t *testing.T) (*rig, user) {
			return newRig(t, identity), user{role: role, from: from, header: map[string]string{name: value}}
		}
	}
	return map[string]func(t *testing.T) (*rig, user){
		"anonymous":        func(t *testing.T) (*rig, user) { return newRig(t, anonymous), user{role: access.Viewer} },
		"session operator": session(annsToken, access.Operator),
		"session viewer":   session(vicsToken, access.Viewer),
		"bearer operator":  header(withTokens, access.Operator, "", "Authorization", "Bearer "+annsToken),
		"bearer viewer":    header(withTokens, access.Viewer, "", "Authorization", "bearer  "+vicsToken),
		"basic operator":   header(withPasswords, access.Operator, "", "Authorization", basic("ann", "secret of ann")),
		"basic viewer":     header(withPasswords, access.Viewer, "", "Authorization", basic("vic", "secret of vic")),
		"proxy operator":   header(withProxy, access.Operator, "10.0.0.7:1", "X-Forwarded-User", "ann"),
		"proxy viewer":     header(withProxy, access.Viewer, "10.0.0.7:1", "X-Forwarded-User", "vic"),
	}
}

func basic(name, password string) string {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(name, password)
	return r.Header.Get("Authorization")
}
