package access_test

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/console/access"
)

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
				for path, reached := range map[string]string{"/order": "search", "/language": "language", "/api/v1/order": "api"} {
					header := map[string]string{}
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

func TestOtherSites_TheAPIAcceptsJSONOnly(t *testing.T) {
	for name, as := range users() {
		r, u := as(t)
		for kind, ok := range map[string]bool{
			"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true,
			"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "text/plain; application/json": false, "application/json, text/plain": false,
		} {
			q := request{method: "POST", path: "/api/v1/order", body: "{}", header: map[string]string{"Content-Type": kind}}
			if resp := r.do(u.request(q)); (resp.StatusCode == 200) != ok || !ok && (resp.StatusCode != 415 || r.reached != "") {
				t.Errorf("%s: Content-Type %q answers %s", name, kind, resp.Status)
			}
		}
	}
}

func TestGate_LimitsTheSizeOfBodies(t *testing.T) {
	r := newRig(t, withPasswords)
	u := ann()
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
		{"/order", "application/x-www-form-urlencoded", 5 << 20, user{}, 401}, // unread
	} {
		q := request{method: "POST", path: row.path, body: "id=" + strings.Repeat("x", row.size-3), header: map[string]string{"Content-Type": row.kind}}
		resp := r.do(row.u.request(q))
		if resp.StatusCode != row.status || (r.reached != "") != (row.status == 200) || (resp.Header.Get("Connection") == "close") != (row.status == 413) {
			t.Errorf("%s with %d bytes answers %s, Connection %q", row.path, row.size, resp.Status, resp.Header.Get("Connection"))
		}
	}
}
