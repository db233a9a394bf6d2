package access_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
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
		r := newRig(t, func(r *rig, s *config.Console) {
			withPasswords(r, s)
			s.Listen, s.Hosts = row.listen, row.hosts
			s.Proxies = prefixes("10.9.9.9/32")
		})
		u := map[string]string{"Authorization": basic("vic", "secret of vic")}
		for _, host := range row.accepted {
			if resp := r.do(request{host: host, header: u}); resp.StatusCode != 200 {
				t.Errorf("listen %s, hosts %v: Host %q answers %s", row.listen, row.hosts, host, resp.Status)
			}
		}
		for _, host := range row.refused {
			for _, path := range []string{"/", "/login", "/static/style.css", "/api/v1/status"} {
				if resp := r.do(request{host: host, path: path, header: u}); resp.StatusCode != 421 || r.reached != "" {
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
			if r.identity.Role != u.role || r.identity.MayAct != (u.role == access.Operator) {
				t.Errorf("the identity is %+v, want role %s", r.identity, u.role)
			}
			for _, action := range []request{
				{method: "POST", path: "/plans", form: url.Values{}},
				{method: "POST", path: "/api/v1/actions", body: "{}", header: map[string]string{"Content-Type": "application/json"}},
			} {
				resp := r.do(u.request(action))
				if u.role == access.Operator {
					expect.That(t, resp.StatusCode == 200 && strings.HasSuffix(r.reached, "action"), "%s answers %s", action.path, resp.Status)
					continue
				}
				if resp.StatusCode != 403 || r.reached != "" || !strings.Contains(r.log.String(), "reason=not_operator") {
					t.Errorf("%s answers %s, reached %q, log:\n%s", action.path, resp.Status, r.reached, r.log)
				}
			}
			for _, read := range []request{
				{path: "/"}, {path: "/dead-letters?cause=x"}, {path: "/static/style.css"}, {path: "/api/v1/status"}, {method: "HEAD"},
				{method: "POST", path: "/order", form: url.Values{"id": {"1"}}},
				{method: "POST", path: "/api/v1/order", body: "{}", header: map[string]string{"Content-Type": "application/json"}},
			} {
				if resp := r.do(u.request(read)); resp.StatusCode != 200 || r.reached == "" {
					t.Errorf("%s %s answers %s", read.method, read.path, resp.Status)
				}
			}
			if resp := r.do(u.request(request{path: "/plans"})); resp.StatusCode != 405 || r.reached != "" {
				t.Errorf("an action by GET answers %s", resp.Status)
			}
		})
	}
}

func TestGate_WithoutOperatorsNobodyStartsAnAction(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) { withPasswords(r, s); s.Operators = nil })
	resp := r.do(ann().request(request{method: "POST", path: "/plans", form: url.Values{}}))
	if text := body(t, resp); resp.StatusCode != 403 || r.reached != "" || text != "you are a viewer; actions need an operator\n" {
		t.Errorf("answers %s %s", resp.Status, text)
	}
}

func TestGate_AnActionOutsideOfWrapIsRefused(t *testing.T) {
	r := newRig(t, withPasswords)
	r.handler = r.gate.Action(r.handle("action"))
	resp := r.do(request{method: "POST", path: "/plans", header: map[string]string{"Authorization": basic("ann", "secret of ann")}})
	expect.That(t, resp.StatusCode == 403 && r.reached == "", "answers %s", resp.Status)
}

// Requests without identity reach nothing but public paths.
func TestGate_WithoutIdentityNothingIsShown(t *testing.T) {
	for name, row := range map[string]struct {
		identity  func(*rig, *config.Console)
		from      string
		status    int // of pages and of the API
		challenge string
	}{
		"certificates":         {withCertificates, "", 403, ""},
		"passwords":            {withPasswords, "", 401, `Basic realm="orderclose", charset="UTF-8"`},
		"proxy without user":   {withProxy, "10.0.0.7:1", 403, ""},
		"proxy from elsewhere": {withProxy, "127.0.0.1:1", 403, ""},
	} {
		r := newRig(t, row.identity)
		for _, q := range []request{
			{path: "/"}, {path: "/dead-letters/0/1"}, {path: "/api/v1/status"}, {path: "/live?page=now"}, {path: "/no-such-page"}, {path: "/logout"},
			{method: "POST", path: "/plans"}, {method: "POST", path: "/api/v1/actions"}, {method: "POST", path: "/logout"},
			{path: "/static"}, {path: "/staticx/"}, {path: "/language/x"}, {path: "/login/"},
		} {
			q.from = row.from
			resp := r.do(q)
			if resp.StatusCode != row.status || r.reached != "" || resp.Header.Get("WWW-Authenticate") != row.challenge {
				t.Errorf("%s: %s %s answers %s %q, reached %q", name, q.method, q.path, resp.Status, resp.Header.Get("WWW-Authenticate"), r.reached)
			}
		}
		for _, q := range []request{{path: "/static/style.css"}, {path: "/static/"}, {method: "POST", path: "/language", form: url.Values{"lang": {"zh"}}}} {
			q.from = row.from
			if resp := r.do(q); resp.StatusCode != 200 || r.reached == "" || r.identity != (access.Identity{}) {
				t.Errorf("%s: %s answers %s to %+v", name, q.path, resp.Status, r.identity)
			}
		}
	}
}

func TestGate_RefusesPathsThatARouterReadsDifferently(t *testing.T) {
	r := newRig(t, withPasswords)
	u := ann()
	for _, path := range []string{
		"//", "//static/", "/static/../", "/static/../dead-letters", "/static/%2e%2e/", "/x/%2e%2e/static/y", "/static%2f..%2f", "/static/%2F", "/./static/",
		"/static//x", "/%73tatic/x", "/a/..",
	} {
		for _, q := range []request{{path: path}, u.request(request{path: path})} {
			if resp := r.do(q); resp.StatusCode != 400 || r.reached != "" {
				t.Errorf("%s answers %s, reached %q", path, resp.Status, r.reached)
			}
		}
	}
	for _, path := range []string{"/dead-letters/", "/dead-letters?x=/../", "/a%20b", "/%E8%AE%A2"} {
		if resp := r.do(u.request(request{path: path})); resp.StatusCode != 200 || r.reached == "" {
			t.Errorf("%s answers %s", path, resp.Status)
		}
	}
}

func TestGate_RefusesOtherMethods(t *testing.T) {
	r := newRig(t, withPasswords)
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "X"} {
		for _, path := range []string{"/", "/static/", "/login", "/plans"} {
			resp := r.do(request{method: method, path: path, header: map[string]string{"Authorization": basic("ann", "secret of ann")}})
			if resp.StatusCode != 405 || r.reached != "" || resp.Header.Get("Allow") != "GET, HEAD, POST" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s answers %s", method, path, resp.Status)
			}
		}
	}
}

func TestGate_EveryResponseHasTheHeadersOfSafety(t *testing.T) {
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; worker-src 'self'; connect-src 'self'; " +
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Strict-Transport-Security": "",
		"Access-Control-Allow-Origin": "",
	}
	r := newRig(t, withPasswords)
	u := ann()
	for _, q := range []request{
		u.request(request{}), u.request(request{path: "/api/v1/status"}), u.request(request{method: "POST", path: "/plans"}), {}, {path: "/login"},
		{path: "/api/v1/status"},
		{host: "evil.example"}, {method: "PUT"}, {path: "//"}, {method: "POST", path: "/login"}, {from: "10.0.0.1:1"}, {path: "/static/x"},
	} {
		resp := r.do(q)
		for name, value := range want {
			expect.Equal(t, resp.Header.Get(name), value, "%s %s of %q from %q answers %s with %s", q.method, q.path, q.host, q.from, resp.Status, name)
		}
	}
}

func TestGate_StrictTransportSecurityNeedsTLSAndAName(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) {
		withPasswords(r, s)
		s.Hosts, s.Proxies = []string{"console.example"}, prefixes("10.0.0.7/32")
	})
	for _, row := range []struct {
		q    request
		want string
	}{
		{request{host: "console.example"}, ""},
		{request{host: "console.example", tls: true}, "max-age=86400"},
		{request{host: "console.example", from: "10.0.0.7:1"}, "max-age=86400"},
		{request{host: "localhost:9465", tls: true}, ""},
		{request{host: "[::1]:9465", tls: true}, ""},
		{request{host: "127.0.0.1", tls: true}, ""},
	} {
		expect.Equal(t, r.do(row.q).Header.Get("Strict-Transport-Security"), row.want, "%+v", row.q)
	}
}

func TestGate_OffTheLoopbackRequestsNeedTLS(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) {
		withPasswords(r, s)
		s.Listen, s.Hosts, s.Proxies = "0.0.0.0:9465", []string{"console.example"}, prefixes("10.0.0.0/30", "fd00::/64")
	})
	for _, row := range []struct {
		from      string
		tls       bool
		forwarded string // X-Forwarded-Proto
		status    int
	}{
		{"127.0.0.1:1", false, "", 200},
		{"127.8.8.8:1", false, "", 200},
		{"[::1]:1", false, "", 200},
		{"[::ffff:127.0.0.1]:1", false, "", 200},
		{"10.0.0.1:1", false, "", 200},
		{"10.0.0.1:1", false, "https", 200},
		{"10.0.0.1:1", false, "HTTP", 403},
		{"10.0.0.1:1", true, "http", 403},
		{"[::ffff:10.0.0.1]:1", false, "", 200},
		{"[fd00::9]:1", false, "", 200},
		{"10.0.0.4:1", false, "", 403},
		{"10.0.0.4:1", false, "https", 403},
		{"10.0.0.4:1", true, "", 200},
		{"10.0.0.4:1", true, "http", 200}, // TLS reached this process, whatever the client says
		{"[fd01::9]:1", false, "", 403},
		{"not an address", false, "", 403},
		{"@", false, "", 403}, // a unix socket
	} {
		header := map[string]string{"Authorization": basic("vic", "secret of vic"), "X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1;proto=https",
			"X-Real-Ip": "127.0.0.1"}
		if row.forwarded != "" {
			header["X-Forwarded-Proto"] = row.forwarded
		}
		resp := r.do(request{host: "console.example", from: row.from, tls: row.tls, header: header})
		expect.That(t, resp.StatusCode == row.status && (r.reached != "") == (row.status == 200), "%+v answers %s", row, resp.Status)
	}
}

func TestGate_IdentityHasTheAddressOfTheConnection(t *testing.T) {
	r := newRig(t, withPasswords)
	r.do(request{from: "127.0.0.5:1", header: map[string]string{"Authorization": basic("ann", "secret of ann"), "X-Forwarded-For": "203.0.113.9",
		"X-Real-Ip": "203.0.113.9"}})
	want := access.Identity{Name: "ann", Role: access.Operator, Address: netip.MustParseAddr("127.0.0.5"), MayAct: true}
	expect.Equal(t, r.identity, want, "identity")
}

func TestGate_WorksBelowABasePath(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) { withPasswords(r, s); s.BasePath = "/shop/orderclose" })
	for path, status := range map[string]int{
		"/shop/orderclose/": 401, "/shop/orderclose": 401, "/shop/orderclose/dead-letters": 401, "/shop/orderclose/api/v1/status": 401,
		"/": 401, "/static/style.css": 401, "/shop/orderclosex/static/": 401,
		"/shop/orderclose/static/x": 200, "/shop/orderclose/static/../../x": 400,
	} {
		if resp := r.do(request{path: path}); resp.StatusCode != status || (r.reached != "") != (status == 200) {
			t.Errorf("%s answers %s, reached %q", path, resp.Status, r.reached)
		}
	}
	r.do(ann().request(request{path: "/shop/orderclose/dead-letters"}))
	expect.That(t, r.reached == "page", "the user does not open the page")
	resp := r.do(vic().request(request{method: "POST", path: "/shop/orderclose/api/v1/actions", body: "{}",
		header: map[string]string{"Content-Type": "application/json"}}))
	text := body(t, resp)
	expect.That(t, resp.StatusCode == 403 && text == "you are a viewer; actions need an operator\n", "an action of the API answers %s %s", resp.Status, text)
}

func TestGate_TheConsoleWritesRefusals(t *testing.T) {
	var got []access.Refusal
	g := must.Get(access.New(access.Options{
		Settings: config.Console{Listen: "127.0.0.1:9465"},
		Refuse:   func(_ http.ResponseWriter, _ *http.Request, refusal access.Refusal) { got = append(got, refusal) },
	}))(t)
	r := &rig{t: t, gate: g, handler: g.Wrap(http.NotFoundHandler())}
	r.do(request{host: "evil.example"})
	r.do(request{host: "evil.example", path: "/api/v1/status"})
	text := "the console does not serve this host name; list it in ORDERCLOSE_CONSOLE_HOSTS"
	want := []access.Refusal{{Status: 421, Reason: "wrong_host", Text: text}, {Status: 421, Reason: "wrong_host", Text: text, API: true}}
	expect.Same(t, got, want, "refusals")
}

func TestReasons_AreComplete(t *testing.T) {
	reasons := access.Reasons()
	slices.Sort(reasons)
	unique := slices.Compact(slices.Clone(reasons))
	expect.That(t, len(unique) == 16 && len(unique) == len(reasons), "got %v", reasons)
}

func TestNew_RefusesUnsafeSettings(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	users := r.write("users.yml", "basic_auth_users: {ann: "+hash("x")+"}\n")
	r.pair("server", nil)
	secured := r.write("tls.yml", "tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
	const choose = "write basic_auth_users or a client CA to the file of ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE, or set ORDERCLOSE_CONSOLE_USER_HEADER"
	for _, row := range []struct {
		s    config.Console
		want string
	}{
		{config.Console{Listen: "0.0.0.0:9465", Proxies: prefixes("10.0.0.7/32")},
			"ORDERCLOSE_CONSOLE_LISTEN is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465"},
		{config.Console{Listen: "0.0.0.0:9465", WebConfigFile: secured},
			"ORDERCLOSE_CONSOLE_LISTEN is not on the loopback, and everybody could open the console; " + choose + ", or listen on 127.0.0.1:9465"},
		{config.Console{Listen: "0.0.0.0:9465", WebConfigFile: users},
			"ORDERCLOSE_CONSOLE_LISTEN is not on the loopback, and the network could read the console; write tls_server_config to the file of " +
				"ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE, or list the proxies that terminate TLS in ORDERCLOSE_CONSOLE_PROXIES"},
		{config.Console{Listen: "127.0.0.1:9465", WebConfigFile: secured, Operators: []string{"ann"}},
			"ORDERCLOSE_CONSOLE_OPERATORS is set, but nobody is known by name; " + choose},
		{config.Console{Listen: "127.0.0.1:9465", WebConfigFile: users, UserHeader: "X-User", Proxies: prefixes("10.0.0.7/32")},
			"the file of ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE has basic_auth_users, and ORDERCLOSE_CONSOLE_USER_HEADER is set, but the console has one kind " +
				"of identity; remove one"},
		{config.Console{Listen: "127.0.0.1:9465", WebConfigFile: r.dir + "/none"},
			"ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE names a file that cannot be read: no such file or directory; mount the file there or unset the variable"},
	} {
		_, err := access.New(access.Options{Settings: row.s})
		expect.Same(t, fmt.Sprint(err), row.want, "%v", row.s)
	}
	both := r.write("both.yml", "basic_auth_users: {ann: "+hash("x")+"}\ntls_server_config: {cert_file: server.crt, key_file: server.key}\n")
	for _, s := range []config.Console{
		{Listen: "127.0.0.1:9465"}, {Listen: "127.0.0.1:9465", WebConfigFile: secured}, {Listen: "localhost:0", WebConfigFile: users, Operators: []string{"ann"}},
		{Listen: "0.0.0.0:9465", WebConfigFile: users, Proxies: prefixes("10.0.0.7/32")}, {Listen: "0.0.0.0:9465", WebConfigFile: both},
		{Listen: "0.0.0.0:9465", WebConfigFile: secured, UserHeader: "X-User", Proxies: prefixes("10.0.0.7/32")},
	} {
		if _, err := access.New(access.Options{Settings: s}); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// A console without identity serves the machine itself, whatever it listens on.
func TestGate_WithoutIdentityOnlyTheLoopbackIsServed(t *testing.T) {
	r := newRig(t, anonymous)
	resp := r.do(request{from: "10.0.0.1:1", tls: true})
	expect.That(t, resp.StatusCode == 403 && r.reached == "", "answers %s", resp.Status)
	r.do(request{})
	expect.That(t, r.reached == "page", "the loopback is not served")
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text := must.Get(io.ReadAll(resp.Body))(t)
	return string(text)
}
