package access_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// rig is a console with a Gate.
type rig struct {
	t       *testing.T
	gate    *access.Gate
	handler http.Handler
	log     *testkit.LogBuffer

	reached  string          // the handler that the last request reached; "": none
	identity access.Identity // of that request
}

// newRig returns a console on the loopback. change may change the settings.
func newRig(t *testing.T, change func(r *rig, s *environ.Console)) *rig {
	t.Helper()
	r := &rig{t: t, log: &testkit.LogBuffer{}}
	s := environ.Console{Listen: "127.0.0.1:9465"}
	if change != nil {
		change(r, &s)
	}
	r.gate = must.Get(access.New(access.Options{
		Settings: s,
		Refuse: func(w http.ResponseWriter, _ *http.Request, refusal access.Refusal) {
			http.Error(w, string(refusal.Reason), refusal.Status)
		},
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(t)
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.Handler{
		"/":           r.handle("page"),
		"/static/":    r.handle("static"),
		"POST /order": r.handle("search"),
		"/actions":    r.gate.Action(r.handle("action")),
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

func anonymous(*rig, *environ.Console) {}

func withProxy(_ *rig, s *environ.Console) {
	s.UserHeader, s.Operators = "X-Forwarded-User", []string{"ann"}
	s.Proxies = prefixes("10.0.0.7/32", "127.0.0.9/32")
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// request is a request to a rig. The zero value of each field is the usual one.
type request struct {
	method, path string
	host         string // default: 127.0.0.1:9465
	from         string // default: 127.0.0.1:50000
	header       map[string]string
	form         url.Values
	body         string
}

// do sends a request and returns the response.
func (r *rig) do(q request) *http.Response {
	r.t.Helper()
	r.reached, r.identity = "", access.Identity{}
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
	if q.form != nil {
		h.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range q.header {
		h.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, h)
	return w.Result()
}

// user is how a user of a rig sends requests.
type user struct {
	role   access.Role
	from   string
	header map[string]string
}

func (u user) request(q request) request {
	if q.from == "" {
		q.from = u.from
	}
	header := map[string]string{}
	maps.Copy(header, u.header)
	maps.Copy(header, q.header)
	q.header = header
	return q
}

// The users behind the proxy.

func ann() user { return behindProxy(access.Operator, "ann") }
func vic() user { return behindProxy(access.Viewer, "vic") }

func behindProxy(role access.Role, name string) user {
	return user{role: role, from: "10.0.0.7:1", header: map[string]string{"X-Forwarded-User": name}}
}

// users are all ways to be a user.
func users() map[string]func(t *testing.T) (*rig, user) {
	as := func(identity func(*rig, *environ.Console), u user) func(*testing.T) (*rig, user) {
		return func(t *testing.T) (*rig, user) { return newRig(t, identity), u }
	}
	return map[string]func(t *testing.T) (*rig, user){
		"anonymous": as(anonymous, user{role: access.Viewer}), "operator": as(withProxy, ann()), "viewer": as(withProxy, vic()),
	}
}
