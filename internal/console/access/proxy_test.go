package access_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
)

func TestProxy_IsBelievedFromListedAddressesOnly(t *testing.T) {
	r := newRig(t, withProxy)
	for from, want := range map[string]string{
		"10.0.0.7:1": "", "[::ffff:10.0.0.7]:1": "", "127.0.0.9:1": "",
		"10.0.0.8:1": "not_proxy", "127.0.0.1:1": "not_proxy", "[::1]:1": "not_proxy", "@": "no_tls",
	} {
		q := request{from: from, tls: from != "@", header: map[string]string{"X-Forwarded-User": "ann", "X-Forwarded-For": "10.0.0.7", "X-Real-Ip": "10.0.0.7", "Forwarded": "for=10.0.0.7"}}
		resp := r.do(q)
		if want == "" && (resp.StatusCode != 200 || r.identity.Name != "ann" || r.identity.Role != access.Operator) {
			t.Errorf("from %s: answers %s to %+v", from, resp.Status, r.identity)
		}
		if want != "" && (resp.StatusCode != 403 || r.reached != "") {
			t.Errorf("from %s: answers %s to %+v, want %s", from, resp.Status, r.identity, want)
		}
		if text := body(t, resp); want == "not_proxy" && !strings.Contains(text, "ORDERCLOSE_CONSOLE_PROXIES") {
			t.Errorf("from %s: answers %q", from, text)
		}
	}
}

func TestProxy_NeedsOneValidUser(t *testing.T) {
	for _, users := range [][]string{nil, {""}, {" "}, {"ann", "ben"}, {"ann", "ann"}, {"a\x00nn"}, {"an\x1b[31mn"}, {"\xff\xfe"}, {strings.Repeat("x", 201)}, {"a\u202en"}} {
		r := newRig(t, withProxy)
		h := httptest.NewRequest("GET", "/", nil)
		h.Host, h.RemoteAddr = "127.0.0.1", "10.0.0.7:1"
		h.Header["X-Forwarded-User"] = users
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, h)
		if w.Code != http.StatusForbidden || r.reached != "" || !strings.Contains(w.Body.String(), "ORDERCLOSE_CONSOLE_USER_HEADER") {
			t.Errorf("%q answers %d %s", users, w.Code, w.Body)
		}
	}
}

func TestProxy_GivesTheRole(t *testing.T) {
	for _, row := range []struct {
		roles []string
		want  access.Role
	}{
		{nil, access.Viewer}, {[]string{"operator"}, access.Operator}, {[]string{"viewer"}, access.Viewer}, {[]string{"Operator"}, access.Viewer}, {[]string{"admin"}, access.Viewer},
		{[]string{"operator", "viewer"}, access.Viewer}, {[]string{"operator, viewer"}, access.Viewer}, {[]string{""}, access.Viewer},
	} {
		r := newRig(t, func(r *rig, s *config.Console) { withProxy(r, s); s.Operators, s.RoleHeader = nil, "X-Role" })
		h := httptest.NewRequest("GET", "/", nil)
		h.Host, h.RemoteAddr = "127.0.0.1", "10.0.0.7:1"
		h.Header["X-Forwarded-User"], h.Header["X-Role"] = []string{"ann"}, row.roles
		r.handler.ServeHTTP(httptest.NewRecorder(), h)
		if r.identity.Role != row.want || r.identity.Name != "ann" {
			t.Errorf("%q gives %+v, want %s", row.roles, r.identity, row.want)
		}
	}
}

// A client that sends the header of the role gets no role by it if the settings have a list.
func TestProxy_TheListOfOperatorsIgnoresHeaders(t *testing.T) {
	r := newRig(t, withProxy)
	if r.do(request{from: "10.0.0.7:1", header: map[string]string{"X-Forwarded-User": "vic", "X-Role": "operator", "": "operator"}}); r.identity.Role != access.Viewer {
		t.Errorf("the identity is %+v", r.identity)
	}
}
