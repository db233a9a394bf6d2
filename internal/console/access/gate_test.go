package access_test

import (
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestGate_AcceptsTheHostsOfTheSettingsOnly(t *testing.T) {
	for _, row := range []struct {
		listen                   string
		hosts, accepted, refused []string
	}{
		{"127.0.0.1:9465", nil,
			[]string{"127.0.0.1:9465", "127.0.0.1", "localhost:9465", "localhost", "LocalHost:8080", "localhost.:1", "[::1]:9465", "[::1]", "[0:0::1]:2",
				"[::ffff:127.0.0.1]:9465"},
			[]string{"evil.example", "evil.example:9465", "127.0.0.1.evil.example", "localhost.evil.example:9465", "127.0.0.2:9465", "0.0.0.0:9465",
				"10.0.0.5", "[::]:9465",
				"[::2]:9465", "[fe80::1%25eth0]:9465", "localhost:9465:9465", "a@localhost", "localhost@evil.example", "localhost,evil.example", "evil.example:@localhost",
				"[localhost", ":9465", "[]", " "}},
		{"127.0.0.1:9465", []string{"console.example", "10.0.0.5", "fd00::5"},
			[]string{"console.example", "CONSOLE.example:443", "console.example.", "10.0.0.5:80", "[fd00:0::5]", "localhost"},
			[]string{"example", "a.console.example", "console.example.evil.example", "xconsole.example"}},
		{"10.0.0.5:9465", []string{"console.example"}, []string{"10.0.0.5:9465", "10.0.0.5", "localhost:9465"}, []string{"10.0.0.6:9465"}},
		{"[fd00::5]:9465", nil, []string{"[fd00::5]:9465", "[fd00:0:0::5]"}, []string{"[fd00::6]:9465"}},
		{"0.0.0.0:9465", nil, []string{"localhost:9465"}, []string{"0.0.0.0:9465", "10.0.0.5:9465"}},
		{":9465", nil, []string{"127.0.0.1:9465"}, []string{":9465"}},
		{"Shop-1:9465", nil, []string{"shop-1:9465"}, []string{"shop-2:9465"}},
	} {
		r := newRig(t, func(r *rig, s *environ.Console) {
			withProxy(r, s)
			s.Listen, s.Hosts = row.listen, row.hosts
		})
		u := vic()
		for _, host := range row.accepted {
			resp := r.do(u.request(request{host: host}))
			expect.That(t, resp.StatusCode == 200, "listen %s, hosts %v: Host %q answers %s", row.listen, row.hosts, host, resp.Status)
		}
		for _, host := range row.refused {
			for _, path := range []string{"/", "/login", "/static/style.css"} {
				if resp := r.do(u.request(request{host: host, path: path})); resp.StatusCode != 421 || r.reached != "" {
					t.Errorf("listen %s, hosts %v: Host %q of %s answers %s", row.listen, row.hosts, host, path, resp.Status)
				}
			}
		}
	}
}

func TestGate_EachRoleStartsOnlyItsActions(t *testing.T) {
	for name, as := range users() {
		t.Run(name, func(t *testing.T) {
			r, u := as(t)
			r.do(u.request(request{}))
			expect.That(t, r.identity.Role == u.role, "the identity is %+v, want role %s", r.identity, u.role)
			resp := r.do(u.request(request{method: "POST", path: "/actions", form: url.Values{}}))
			if u.role == access.Operator {
				expect.That(t, resp.StatusCode == 200 && r.reached == "action", "an action answers %s", resp.Status)
			} else if resp.StatusCode != 403 || r.reached != "" || !strings.Contains(r.log.String(), "reason=not_operator") {
				t.Errorf("an action answers %s, reached %q, log:\n%s", resp.Status, r.reached, r.log)
			}
			for _, read := range []request{
				{path: "/"}, {path: "/dead-letters?cause=x"}, {path: "/static/style.css"}, {method: "HEAD"},
				{method: "POST", path: "/order", form: url.Values{"id": {"1"}}},
			} {
				resp := r.do(u.request(read))
				expect.That(t, resp.StatusCode == 200 && r.reached != "", "%s %s answers %s", read.method, read.path, resp.Status)
			}
			if resp := r.do(u.request(request{path: "/actions"})); resp.StatusCode != 405 || r.reached != "" {
				t.Errorf("an action by GET answers %s", resp.Status)
			}
		})
	}
}

func TestGate_WithoutOperatorsNobodyStartsAnAction(t *testing.T) {
	r := newRig(t, func(r *rig, s *environ.Console) { withProxy(r, s); s.Operators = nil })
	resp := r.do(ann().request(request{method: "POST", path: "/actions", form: url.Values{}}))
	text := body(t, resp)
	expect.That(t, resp.StatusCode == 403 && r.reached == "" && text == "not_operator\n", "answers %s %s", resp.Status, text)
}

func TestGate_AnActionOutsideOfWrapIsRefused(t *testing.T) {
	r := newRig(t, withProxy)
	r.handler = r.gate.Action(r.handle("action"))
	resp := r.do(ann().request(request{method: "POST", path: "/actions"}))
	expect.That(t, resp.StatusCode == 403 && r.reached == "", "answers %s", resp.Status)
}

// Requests without identity reach nothing but public paths.
func TestGate_WithoutIdentityNothingIsShown(t *testing.T) {
	r := newRig(t, withProxy)
	for from, reason := range map[string]string{"10.0.0.7:1": "no_user\n", "127.0.0.1:1": "not_proxy\n"} {
		for _, q := range []request{
			{path: "/"}, {path: "/dead-letters/0/1"}, {path: "/live"}, {path: "/no-such-page"}, {path: "/logout"},
			{method: "POST", path: "/actions"}, {method: "POST", path: "/logout"},
			{path: "/static"}, {path: "/staticx/"}, {method: "POST", path: "/static/x"}, {path: "/login/"},
		} {
			q.from = from
			if resp := r.do(q); resp.StatusCode != 403 || r.reached != "" || body(t, resp) != reason {
				t.Errorf("from %s: %s %s answers %s, reached %q", from, q.method, q.path, resp.Status, r.reached)
			}
		}
		for _, q := range []request{{path: "/static/style.css"}, {path: "/static/"}, {method: "HEAD", path: "/static/x"}} {
			q.from = from
			if resp := r.do(q); resp.StatusCode != 200 || r.reached == "" || r.identity != (access.Identity{}) {
				t.Errorf("from %s: %s answers %s to %+v", from, q.path, resp.Status, r.identity)
			}
		}
	}
}

func TestGate_RefusesPathsThatARouterReadsDifferently(t *testing.T) {
	r := newRig(t, withProxy)
	u := ann()
	for _, path := range []string{
		"//", "//static/", "/static/../", "/static/../dead-letters", "/static/%2e%2e/", "/x/%2e%2e/static/y", "/static%2f..%2f", "/static/%2F", "/./static/",
		"/static//x", "/%73tatic/x", "/a/..",
	} {
		for _, q := range []request{{path: path}, u.request(request{path: path})} {
			resp := r.do(q)
			expect.That(t, resp.StatusCode == 400 && r.reached == "", "%s answers %s, reached %q", path, resp.Status, r.reached)
		}
	}
	for _, path := range []string{"/dead-letters/", "/dead-letters?x=/../", "/a%20b", "/%E8%AE%A2"} {
		resp := r.do(u.request(request{path: path}))
		expect.That(t, resp.StatusCode == 200 && r.reached != "", "%s answers %s", path, resp.Status)
	}
}

func TestGate_RefusesOtherMethods(t *testing.T) {
	r := newRig(t, withProxy)
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "X"} {
		for _, path := range []string{"/", "/static/", "/login", "/actions"} {
			resp := r.do(ann().request(request{method: method, path: path}))
			if resp.StatusCode != 405 || r.reached != "" || resp.Header.Get("Allow") != "GET, HEAD, POST" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s answers %s", method, path, resp.Status)
			}
		}
	}
}

func TestGate_EveryResponseHasTheHeadersOfSafety(t *testing.T) {
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; " +
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Strict-Transport-Security": "",
		"Access-Control-Allow-Origin": "",
	}
	r := newRig(t, withProxy)
	u := ann()
	for _, q := range []request{
		u.request(request{}), u.request(request{method: "POST", path: "/actions"}), {}, {path: "/login"},
		{host: "evil.example"}, {method: "PUT"}, {path: "//"}, {method: "POST", path: "/login"}, {from: "10.0.0.1:1"}, {path: "/static/x"},
	} {
		resp := r.do(q)
		for name, value := range want {
			expect.Equal(t, resp.Header.Get(name), value, "%s %s of %q from %q answers %s with %s", q.method, q.path, q.host, q.from, resp.Status, name)
		}
	}
}

func TestGate_StrictTransportSecurityNeedsAProxyAndAName(t *testing.T) {
	r := newRig(t, func(r *rig, s *environ.Console) {
		withProxy(r, s)
		s.Hosts = []string{"console.example"}
	})
	for _, row := range []struct {
		q    request
		want string
	}{
		{request{host: "console.example"}, ""},
		{request{host: "console.example", from: "10.0.0.7:1"}, "max-age=86400"},
		{request{host: "localhost:9465", from: "10.0.0.7:1"}, ""},
		{request{host: "[::1]:9465", from: "10.0.0.7:1"}, ""},
		{request{host: "127.0.0.1", from: "10.0.0.7:1"}, ""},
	} {
		expect.Equal(t, r.do(row.q).Header.Get("Strict-Transport-Security"), row.want, "%+v", row.q)
	}
}

// Off the loopback a request comes from a listed proxy, which must have terminated TLS, whatever the headers say.
func TestGate_OffTheLoopbackRequestsNeedAListedProxy(t *testing.T) {
	r := newRig(t, func(r *rig, s *environ.Console) {
		withProxy(r, s)
		s.Listen, s.Hosts, s.Proxies = "0.0.0.0:9465", []string{"console.example"}, prefixes("10.0.0.0/30", "fd00::/64")
	})
	for _, row := range []struct {
		from, forwarded string // forwarded is X-Forwarded-Proto
		refused         string // "": it is not
	}{
		{"10.0.0.1:1", "", ""},
		{"10.0.0.1:1", "https", ""},
		{"10.0.0.1:1", "HTTP", "no_tls"},
		{"10.0.0.1:1", "http", "no_tls"},
		{"[::ffff:10.0.0.1]:1", "", ""},
		{"[fd00::9]:1", "", ""},
		{"10.0.0.4:1", "", "not_proxy"},
		{"10.0.0.4:1", "https", "not_proxy"},
		{"[fd01::9]:1", "", "not_proxy"},
		{"127.0.0.1:1", "", "not_proxy"},
		{"not an address", "", "not_proxy"},
		{"@", "", "not_proxy"}, // a unix socket
	} {
		header := map[string]string{"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1;proto=https", "X-Real-Ip": "10.0.0.1"}
		if row.forwarded != "" {
			header["X-Forwarded-Proto"] = row.forwarded
		}
		resp := r.do(vic().request(request{host: "console.example", from: row.from, header: header}))
		expect.That(t, (r.reached != "") == (row.refused == "") && (row.refused == "" || resp.StatusCode == 403 && body(t, resp) == row.refused+"\n"),
			"%+v answers %s", row, resp.Status)
	}
}

func TestGate_IdentityHasTheAddressOfTheConnection(t *testing.T) {
	r := newRig(t, withProxy)
	r.do(ann().request(request{from: "127.0.0.9:1", header: map[string]string{"X-Forwarded-For": "203.0.113.9", "X-Real-Ip": "203.0.113.9"}}))
	want := access.Identity{Name: "ann", Role: access.Operator, Address: netip.MustParseAddr("127.0.0.9")}
	expect.Equal(t, r.identity, want, "identity")
}

func TestGate_WorksBelowABasePath(t *testing.T) {
	r := newRig(t, func(r *rig, s *environ.Console) { withProxy(r, s); s.BasePath = "/shop/orderclose" })
	for path, status := range map[string]int{
		"/shop/orderclose/": 403, "/shop/orderclose": 403, "/shop/orderclose/dead-letters": 403,
		"/": 403, "/static/style.css": 403, "/shop/orderclosex/static/": 403,
		"/shop/orderclose/static/x": 200, "/shop/orderclose/static/../../x": 400,
	} {
		resp := r.do(request{path: path})
		expect.That(t, resp.StatusCode == status && (r.reached != "") == (status == 200), "%s answers %s, reached %q", path, resp.Status, r.reached)
	}
	r.do(ann().request(request{path: "/shop/orderclose/dead-letters"}))
	expect.That(t, r.reached == "page", "the user does not open the page")
	resp := r.do(vic().request(request{method: "POST", path: "/shop/orderclose/actions", form: url.Values{}}))
	text := body(t, resp)
	expect.That(t, resp.StatusCode == 403 && text == "not_operator\n", "an action answers %s %s", resp.Status, text)
}

func TestGate_TheConsoleWritesRefusals(t *testing.T) {
	var got []access.Refusal
	g := must.Get(access.New(access.Options{
		Settings: environ.Console{Listen: "127.0.0.1:9465"},
		Refuse:   func(_ http.ResponseWriter, _ *http.Request, refusal access.Refusal) { got = append(got, refusal) },
	}))(t)
	r := &rig{t: t, gate: g, handler: g.Wrap(http.NotFoundHandler())}
	r.do(request{host: "evil.example"})
	want := []access.Refusal{{Status: 421, Reason: "wrong_host"}}
	expect.Same(t, got, want, "refusals")
}

func TestNew_RefusesUnsafeSettings(t *testing.T) {
	for _, s := range []environ.Console{
		{Listen: "0.0.0.0:9465"}, {Listen: "0.0.0.0:9465", Proxies: prefixes("10.0.0.7/32")}, {Listen: "127.0.0.1:9465", Operators: []string{"ann"}},
		{Listen: "127.0.0.1:9465", UserHeader: "X-User"}, {Listen: "127.0.0.1:9465", Proxies: prefixes("10.0.0.7/32")},
	} {
		_, err := access.New(access.Options{Settings: s})
		expect.That(t, err != nil, "%+v is accepted", s)
	}
	for _, s := range []environ.Console{
		{Listen: "127.0.0.1:9465"}, {Listen: "0.0.0.0:9465", UserHeader: "X-User", Proxies: prefixes("10.0.0.7/32")},
		{Listen: "localhost:0", UserHeader: "X-User", Proxies: prefixes("127.0.0.1/32"), Operators: []string{"ann"}},
	} {
		_, err := access.New(access.Options{Settings: s})
		expect.That(t, err == nil, "%+v: %v", s, err)
	}
}

// A console without identity serves the machine itself, whatever it listens on.
func TestGate_WithoutIdentityOnlyTheLoopbackIsServed(t *testing.T) {
	r := newRig(t, anonymous)
	resp := r.do(request{from: "10.0.0.1:1"})
	expect.That(t, resp.StatusCode == 403 && r.reached == "", "answers %s", resp.Status)
	r.do(request{})
	expect.That(t, r.reached == "page", "the loopback is not served")
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text := must.Get(io.ReadAll(resp.Body))(t)
	return string(text)
}
