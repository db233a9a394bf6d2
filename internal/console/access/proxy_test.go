package access_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestProxy_IsBelievedFromListedAddressesOnly(t *testing.T) {
	r := newRig(t, withProxy)
	for from, want := range map[string]string{
		"10.0.0.7:1": "", "[::ffff:10.0.0.7]:1": "", "127.0.0.9:1": "",
		"10.0.0.8:1": "not_proxy", "127.0.0.1:1": "not_proxy", "[::1]:1": "not_proxy", "@": "not_proxy",
	} {
		q := request{from: from, header: map[string]string{"X-Forwarded-User": "ann", "X-Forwarded-For": "10.0.0.7", "X-Real-Ip": "10.0.0.7",
			"Forwarded": "for=10.0.0.7"}}
		resp := r.do(q)
		expect.That(t, want != "" || resp.StatusCode == 200 && r.identity.Name == "ann" && r.identity.Role == access.Operator,
			"from %s: answers %s to %+v", from, resp.Status, r.identity)
		expect.That(t, want == "" || resp.StatusCode == 403 && r.reached == "", "from %s: answers %s to %+v, want %s", from, resp.Status, r.identity, want)
		text := body(t, resp)
		expect.That(t, want == "" || text == want+"\n", "from %s: answers %q", from, text)
	}
}

func TestProxy_NeedsOneValidUser(t *testing.T) {
	for _, users := range [][]string{nil, {""}, {" "}, {"ann", "ben"}, {"ann", "ann"}, {"a\x00nn"}, {"an\x1b[31mn"}, {"\xff\xfe"},
		{strings.Repeat("x", 201)}, {"a\u202en"}} {
		r := newRig(t, withProxy)
		h := httptest.NewRequest("GET", "/", nil)
		h.Host, h.RemoteAddr = "127.0.0.1", "10.0.0.7:1"
		h.Header["X-Forwarded-User"] = users
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, h)
		expect.That(t, w.Code == http.StatusForbidden && r.reached == "" && w.Body.String() == "no_user\n", "%q answers %d %s", users, w.Code, w.Body)
	}
}

func TestProxy_GivesTheRole(t *testing.T) {
	for _, row := range []struct {
		roles []string
		want  access.Role
	}{
		{nil, access.Viewer}, {[]string{"operator"}, access.Operator}, {[]string{"viewer"}, access.Viewer}, {[]string{"Operator"}, access.Viewer},
		{[]string{"admin"}, access.Viewer},
		{[]string{"operator", "viewer"}, access.Viewer}, {[]string{"operator, viewer"}, access.Viewer}, {[]string{""}, access.Viewer},
	} {
		r := newRig(t, func(r *rig, s *environ.Console) { withProxy(r, s); s.Operators, s.RoleHeader = nil, "X-Role" })
		h := httptest.NewRequest("GET", "/", nil)
		h.Host, h.RemoteAddr = "127.0.0.1", "10.0.0.7:1"
		h.Header["X-Forwarded-User"], h.Header["X-Role"] = []string{"ann"}, row.roles
		r.handler.ServeHTTP(httptest.NewRecorder(), h)
		expect.That(t, r.identity.Role == row.want && r.identity.Name == "ann", "%q gives %+v, want %s", row.roles, r.identity, row.want)
	}
}

// A client that sends the header of the role gets no role by it if the settings have a list.
func TestProxy_TheListOfOperatorsIgnoresHeaders(t *testing.T) {
	r := newRig(t, withProxy)
	r.do(request{from: "10.0.0.7:1", header: map[string]string{"X-Forwarded-User": "vic", "X-Role": "operator", "": "operator"}})
	expect.That(t, r.identity.Role == access.Viewer, "the identity is %+v", r.identity)
}

// http.CrossOriginProtection is the one answer to requests that pages of other sites cause.
func TestOtherSites_TheirRequestsAreRefused(t *testing.T) {
	for name, as := range users() {
		t.Run(name, func(t *testing.T) {
			r, u := as(t)
			for _, row := range []struct {
				header map[string]string
				ok     bool
			}{
				{nil, true}, // a program: every browser sends one of the headers
				{map[string]string{"Sec-Fetch-Site": "same-origin"}, true},
				{map[string]string{"Sec-Fetch-Site": "none"}, true},
				{map[string]string{"Origin": "http://127.0.0.1:9465"}, true},
				{map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
				{map[string]string{"Sec-Fetch-Site": "same-site"}, false},
				{map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:9465"}, false},
				{map[string]string{"Origin": "https://evil.example"}, false},
				{map[string]string{"Origin": "http://127.0.0.1:9466"}, false},
				{map[string]string{"Origin": "null"}, false},
			} {
				for path, reached := range map[string]string{"/order": "search"} {
					resp := r.do(u.request(request{method: "POST", path: path, header: row.header}))
					refused := resp.StatusCode == 403 && body(t, resp) == "other_site\n"
					expect.That(t, refused != row.ok && (row.ok || r.reached == "") && (!row.ok || r.reached == reached),
						"%v: %s answers %s, reached %q", row.header, path, resp.Status, r.reached)
				}
			}
		})
	}
}

func TestGate_LimitsTheSizeOfBodies(t *testing.T) {
	r := newRig(t, withProxy)
	u := ann()
	for _, row := range []struct {
		path, kind string
		size       int
		u          user
		status     int
	}{
		{"/order", "application/x-www-form-urlencoded", access.MaxBody, u, 200},
		{"/order", "application/x-www-form-urlencoded", access.MaxBody + 1, u, 413},
		{"/order", "application/x-www-form-urlencoded", 5 << 20, user{}, 403}, // unread
	} {
		q := request{method: "POST", path: row.path, body: "id=" + strings.Repeat("x", row.size-3), header: map[string]string{"Content-Type": row.kind}}
		resp := r.do(row.u.request(q))
		if resp.StatusCode != row.status || (r.reached != "") != (row.status == 200) || (resp.Header.Get("Connection") == "close") != (row.status == 413) {
			t.Errorf("%s with %d bytes answers %s, Connection %q", row.path, row.size, resp.Status, resp.Header.Get("Connection"))
		}
	}
}
