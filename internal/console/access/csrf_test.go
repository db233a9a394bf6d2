package access_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/console/access"
)

func TestCSRF_AFormNeedsTheTokenOfItsUser(t *testing.T) {
	for name, as := range users() {
		t.Run(name, func(t *testing.T) {
			r, u := as(t)
			csrf := r.csrf(u)
			other := newRig(t, withTokens)
			foreign := other.csrf(user{cookies: other.login(annsToken)})
			for _, path := range []string{"/order", "/plans", "/logout"} {
				for what, q := range map[string]request{
					"no token":                {form: url.Values{}},
					"an empty token":          {form: url.Values{"csrf": {""}}},
					"a wrong token":           {form: url.Values{"csrf": {csrf[1:] + "x"}}},
					"a shorter token":         {form: url.Values{"csrf": {csrf[:10]}}},
					"the token of a process":  {form: url.Values{"csrf": {foreign}}},
					"a wrong header":          {header: map[string]string{"X-CSRF-Token": foreign}, form: url.Values{"csrf": {csrf}}},
					"the token in the query":  {path: path + "?csrf=" + csrf, form: url.Values{}},
					"the token in plain text": {body: "csrf=" + csrf, header: map[string]string{"Content-Type": "text/plain"}},
					"the token in JSON":       {body: `{"csrf":"` + csrf + `"}`, header: map[string]string{"Content-Type": "application/json"}},
					"the token in multipart": {body: "--x\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\n" + csrf + "\r\n--x--\r\n",
						header: map[string]string{"Content-Type": "multipart/form-data; boundary=x"}},
				} {
					q.method = "POST"
					if q.path == "" {
						q.path = path
					}
					if resp := r.do(u.request(q)); resp.StatusCode != 403 || r.reached != "" || !strings.Contains(body(t, resp), "no valid CSRF token") {
						t.Errorf("%s: %s answers %s", what, q.path, resp.Status)
					}
				}
			}
			for what, q := range map[string]request{
				"the field":  {form: url.Values{"csrf": {csrf}}},
				"the header": {header: map[string]string{"X-CSRF-Token": csrf}},
			} {
				q.method, q.path = "POST", "/order"
				if resp := r.do(u.request(q)); resp.StatusCode != 200 || r.reached != "search" {
					t.Errorf("%s answers %s", what, resp.Status)
				}
			}
		})
	}
}

func TestCSRF_ATokenIsOfOneUserAndOneSession(t *testing.T) {
	r := newRig(t, withTokens)
	first, second, vic := user{cookies: r.login(annsToken)}, user{cookies: r.login(annsToken)}, user{cookies: r.login(vicsToken)}
	if a, b, c := r.csrf(first), r.csrf(second), r.csrf(vic); a == b || a == c || b == c {
		t.Errorf("the tokens are %s, %s and %s", a, b, c)
	}
	p := newRig(t, withPasswords)
	ann, other := user{header: map[string]string{"Authorization": basic("ann", "secret of ann")}}, user{header: map[string]string{"Authorization": basic("vic", "secret of vic")}}
	if a, b := p.csrf(ann), p.csrf(other); a == b || a != p.csrf(ann) || a == newRig(t, withPasswords).csrf(ann) {
		t.Errorf("the tokens are %s and %s", a, b)
	}
}

func TestCSRF_RequestsOfOtherSitesAreRefused(t *testing.T) {
	for name, as := range users() {
		t.Run(name, func(t *testing.T) {
			r, u := as(t)
			csrf := r.csrf(u)
			for _, row := range []struct {
				header map[string]string
				ok     bool
			}{
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
				for path, reached := range map[string]string{"/order": "search", "/language": "language", "/api/v1/order": "api", "/login": ""} {
					header := map[string]string{"X-CSRF-Token": csrf}
					if reached == "api" {
						header["Content-Type"] = "application/json"
					}
					for n, v := range row.header {
						header[n] = v
					}
					resp := r.do(u.request(request{method: "POST", path: path, header: header}))
					refused := resp.StatusCode == 403 && strings.Contains(body(t, resp), "another site")
					if refused == row.ok || !row.ok && r.reached != "" || row.ok && r.reached != reached {
						t.Errorf("%v: %s answers %s, reached %q", row.header, path, resp.Status, r.reached)
					}
				}
			}
		})
	}
}

func TestCSRF_TheAPIAcceptsJSONOnly(t *testing.T) {
	for name, as := range users() {
		r, u := as(t)
		csrf := r.csrf(u)
		session := r.identity.Session
		for kind, ok := range map[string]bool{
			"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true,
			"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "text/plain; application/json": false, "application/json, text/plain": false,
		} {
			q := request{method: "POST", path: "/api/v1/order", body: "{}", header: map[string]string{"X-CSRF-Token": csrf, "Content-Type": kind}}
			if resp := r.do(u.request(q)); (resp.StatusCode == 200) != ok || !ok && (resp.StatusCode != 415 || r.reached != "") {
				t.Errorf("%s: Content-Type %q answers %s", name, kind, resp.Status)
			}
		}
		// A program has seen no page. A script of a page sends the token of the session.
		q := request{method: "POST", path: "/api/v1/order?csrf=" + csrf, body: "{}", header: map[string]string{"Content-Type": "application/json"}}
		if resp := r.do(u.request(q)); (resp.StatusCode == 200) == session {
			t.Errorf("%s: without a token the API answers %s", name, resp.Status)
		}
	}
}

func TestGate_LimitsTheSizeOfBodies(t *testing.T) {
	r := newRig(t, withTokens)
	u := user{cookies: r.login(annsToken)}
	csrf := r.csrf(u)
	for _, row := range []struct {
		path, kind string
		size       int
		u          user
		status     int
	}{
		{"/order", "application/x-www-form-urlencoded", access.MaxBody, u, 200},
		{"/order", "application/x-www-form-urlencoded", access.MaxBody + 1, u, 413},
		{"/api/v1/order", "application/json", access.MaxBody, u, 200},
		{"/api/v1/order", "application/json", access.MaxBody + 1, u, 413},
		{"/language", "application/x-www-form-urlencoded", 17 << 10, user{}, 413},
		{"/login", "application/x-www-form-urlencoded", 17 << 10, user{}, 413},
		{"/order", "application/x-www-form-urlencoded", 5 << 20, user{}, 303}, // to the login form, unread
	} {
		q := request{method: "POST", path: row.path, body: "id=" + strings.Repeat("x", row.size-3), header: map[string]string{"Content-Type": row.kind, "X-CSRF-Token": csrf}}
		resp := r.do(row.u.request(q))
		if resp.StatusCode != row.status || (r.reached != "") != (row.status == 200) || (resp.Header.Get("Connection") == "close") != (row.status == 413) {
			t.Errorf("%s with %d bytes answers %s, Connection %q", row.path, row.size, resp.Status, resp.Header.Get("Connection"))
		}
	}
	q := request{method: "POST", path: "/order", body: "csrf=%zz", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}
	if resp := r.do(u.request(q)); resp.StatusCode != 400 || r.reached != "" {
		t.Errorf("a broken form answers %s", resp.Status)
	}
}
