package access_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
)

func TestLogin_ATokenOpensASession(t *testing.T) {
	r := newRig(t, withTokens)
	if resp := r.do(request{path: "/dead-letters?cause=x%26y"}); resp.StatusCode != 303 || resp.Header.Get("Location") != "/login?next=%2Fdead-letters%3Fcause%3Dx%2526y" || r.reached != "" {
		t.Errorf("without a session the page answers %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	if resp := r.do(request{path: "/login?next=%2Fdead-letters%3Fcause%3Dx%2526y"}); resp.StatusCode != 200 || r.page != (access.LoginPage{Status: 200, Next: "/dead-letters?cause=x%26y"}) {
		t.Errorf("the form answers %s with %+v", resp.Status, r.page)
	}
	resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {" " + annsToken + "\n"}, "next": {"/dead-letters?cause=x%26y"}}})
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/dead-letters?cause=x%26y" {
		t.Errorf("the login answers %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	u := user{cookies: resp.Cookies()}
	r.do(u.request(request{}))
	if want := (access.Identity{Name: "ann", Role: access.Operator, Address: r.identity.Address, MayAct: true, Session: true}); r.identity != want {
		t.Errorf("got %+v, want %+v", r.identity, want)
	}
	if resp := r.do(u.request(request{path: "/login?next=/sweeps"})); resp.StatusCode != 303 || resp.Header.Get("Location") != "/sweeps" {
		t.Errorf("with a session the form answers %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	for _, path := range []string{"/api/v1/status", "/live?page=now"} {
		if r.do(u.request(request{path: path})); r.reached == "" {
			t.Errorf("the session does not open %s", path)
		}
	}
}

// A script cannot show a form.
func TestLogin_ScriptsAndProgramsAreNotLedToTheForm(t *testing.T) {
	r := newRig(t, withTokens)
	for _, q := range []request{
		{path: "/api/v1/status"}, {path: "/live?page=now", header: map[string]string{"Accept": "text/event-stream"}},
		{method: "POST", path: "/api/v1/order", header: map[string]string{"Content-Type": "application/json"}},
	} {
		resp := r.do(q)
		if resp.StatusCode != 401 || r.reached != "" || resp.Header.Get("WWW-Authenticate") != `Bearer realm="orderclose"` {
			t.Errorf("%s answers %s", q.path, resp.Status)
		}
	}
}

func TestLogin_AFormOfAnEndedSessionLeadsToTheLogin(t *testing.T) {
	r := newRig(t, withTokens)
	resp := r.do(request{method: "POST", path: "/plans", form: url.Values{}})
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/login" || r.reached != "" {
		t.Errorf("answers %s to %q", resp.Status, resp.Header.Get("Location"))
	}
}

// Browsers send a SameSite=Strict cookie with the requests of a page of this console only, so not
// with that of a link in a chat.
func TestLogin_ALinkOfAnotherSiteFindsTheSession(t *testing.T) {
	r := newRig(t, withTokens)
	cookies := r.login(annsToken)
	for _, site := range []string{"cross-site", "same-site"} {
		resp := r.do(request{path: "/dead-letters?cause=x", header: map[string]string{"Sec-Fetch-Site": site}}) // without the cookie
		refresh := resp.Header.Get("Refresh")
		if resp.StatusCode != 200 || refresh != "0; url=/login?next=%2Fdead-letters%3Fcause%3Dx" || body(t, resp) != "the login form" || r.reached != "" {
			t.Fatalf("the link answers %s, Refresh %q", resp.Status, refresh)
		}
		resp = r.do(request{path: strings.TrimPrefix(refresh, "0; url="), header: map[string]string{"Sec-Fetch-Site": "same-origin"}, cookies: cookies})
		if resp.StatusCode != 303 || resp.Header.Get("Location") != "/dead-letters?cause=x" {
			t.Errorf("the form answers %s to %q", resp.Status, resp.Header.Get("Location"))
		}
	}
}

func TestLogin_RefusesWrongTokensAndSaysSo(t *testing.T) {
	r := newRig(t, withTokens)
	for _, token := range []string{
		"", "x", annsToken[1:], annsToken + "x", strings.ToUpper(annsToken), strings.TrimSpace(strings.TrimPrefix(line("ann", "operator", annsToken), "ann operator ")),
		strings.TrimPrefix(strings.TrimSpace(line("ann", "operator", annsToken)), "ann operator sha256:"), "ann", strings.Repeat("x", 10_000),
	} {
		resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {token}, "next": {"/sweeps"}}})
		want := access.LoginPage{Status: 401, Reason: access.WrongLogin, Next: "/sweeps"}
		if resp.StatusCode != 401 || r.page != want || len(resp.Cookies()) > 0 {
			t.Errorf("token %q answers %s with %+v", token, resp.Status, r.page)
		}
		resp = r.do(request{path: "/api/v1/status", header: map[string]string{"Authorization": "Bearer " + token}})
		if resp.StatusCode != 401 || r.reached != "" {
			t.Errorf("bearer token %q answers %s", token, resp.Status)
		}
	}
	resp := r.do(request{method: "POST", path: "/login?token=" + annsToken, form: url.Values{}})
	if resp.StatusCode != 401 {
		t.Errorf("a token in the query answers %s", resp.Status)
	}
	for _, header := range []string{"Basic " + annsToken, annsToken, "Token " + annsToken, basic("ann", annsToken), ""} {
		if resp := r.do(request{path: "/api/v1/status", header: map[string]string{"Authorization": header}}); resp.StatusCode != 401 {
			t.Errorf("Authorization %q answers %s", header, resp.Status)
		}
	}
}

// Tokens that can be guessed open nothing, even if the file has their hashes.
func TestLogin_ShortTokensAreNeverValid(t *testing.T) {
	r := newRig(t, func(r *rig, s *config.Console) {
		s.TokensFile = r.write("tokens", line("a", "operator", "nineteen-characters")+line("b", "operator", "")+line("c", "viewer", "twenty-characters-xx"))
	})
	for token, status := range map[string]int{"nineteen-characters": 401, "": 401, "twenty-characters-xx": 303} {
		if resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {token}}}); resp.StatusCode != status {
			t.Errorf("token %q answers %s", token, resp.Status)
		}
	}
	if !strings.Contains(r.log.String(), "the token has fewer than 20 characters") {
		t.Errorf("the log does not say why:\n%s", r.log)
	}
}

func TestLogin_TheCookieIsOutOfReach(t *testing.T) {
	for _, row := range []struct {
		q          request
		name, path string
		secure     bool
	}{
		{request{}, "orderclose-9465", "/", false},
		{request{host: "localhost:8080"}, "orderclose-8080", "/", false},
		{request{host: "[::1]:8080"}, "orderclose-8080", "/", false},
		{request{host: "localhost"}, "orderclose", "/", false},
		{request{tls: true}, "orderclose-9465", "/", true},
		{request{tls: true, from: "10.0.0.1:1"}, "orderclose-9465", "/", true},
		{request{from: "10.0.0.7:1"}, "orderclose-9465", "/", true}, // a proxy that terminates TLS
	} {
		r := newRig(t, func(r *rig, s *config.Console) { withTokens(r, s); s.Proxies = prefixes("10.0.0.7/32") })
		q := row.q
		q.method, q.path, q.form = "POST", "/login", url.Values{"token": {annsToken}}
		c := r.do(q).Cookies()
		if len(c) != 1 || len(c[0].Value) < 26 {
			t.Fatalf("%+v: the cookies are %v", row.q, c)
		}
		got := *c[0]
		got.Raw, got.Value = "", ""
		want := http.Cookie{Name: row.name, Path: row.path, MaxAge: 12 * 60 * 60, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: row.secure}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", row.q, diff)
		}
	}
}

func TestSessions_ABrowserCannotChooseItsSession(t *testing.T) {
	r := newRig(t, withTokens)
	planted := &http.Cookie{Name: "orderclose-9465", Value: "PLANTEDPLANTEDPLANTEDPLANTE"}
	resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {annsToken}}, cookies: []*http.Cookie{planted}})
	if c := resp.Cookies(); len(c) != 1 || c[0].Value == planted.Value {
		t.Errorf("the cookies are %v", c)
	}
	if r.do(request{cookies: []*http.Cookie{planted}}); r.reached != "" {
		t.Error("the planted session is open")
	}
	if r.do(request{cookies: append([]*http.Cookie{planted}, resp.Cookies()...)}); r.reached == "" {
		t.Error("a planted cookie hides the session")
	}
}

func TestSessions_ALoginEndsTheFormerSession(t *testing.T) {
	r := newRig(t, withTokens)
	first := r.login(vicsToken)
	resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {annsToken}}, cookies: first})
	if resp.StatusCode != 303 || resp.Cookies()[0].Value == first[0].Value {
		t.Fatalf("the second login answers %s", resp.Status)
	}
	if r.do(request{cookies: first}); r.reached != "" {
		t.Error("the first session is open")
	}
	if r.do(request{cookies: resp.Cookies()}); r.identity.Name != "ann" {
		t.Errorf("the second session is that of %+v", r.identity)
	}
}

func TestSessions_ALogoutEndsTheSession(t *testing.T) {
	r := newRig(t, withTokens)
	u, other := user{cookies: r.login(annsToken)}, user{cookies: r.login(annsToken)}
	r.do(u.request(request{}))
	if resp := r.do(u.request(request{path: "/logout"})); resp.StatusCode != 405 {
		t.Errorf("a logout by GET answers %s", resp.Status)
	}
	if r.do(u.request(request{})); r.reached == "" {
		t.Error("a link ended the session")
	}
	resp := r.do(u.request(request{method: "POST", path: "/logout", form: url.Values{}}))
	c := resp.Cookies()
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/login" || len(c) != 1 || c[0].MaxAge != -1 || c[0].Value != "" || c[0].Path != "/" {
		t.Errorf("the logout answers %s to %q with %v", resp.Status, resp.Header.Get("Location"), c)
	}
	if r.do(u.request(request{})); r.reached != "" {
		t.Error("the session is open")
	}
	if r.do(other.request(request{})); r.reached == "" {
		t.Error("another session of the user has ended")
	}
}

func TestSessions_EndTwelveHoursAfterTheLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withTokens)
		u := user{cookies: r.login(annsToken)}
		for range 11 {
			time.Sleep(time.Hour)
			if r.do(u.request(request{})); r.reached == "" {
				t.Fatal("the session has ended early")
			}
		}
		time.Sleep(time.Hour - time.Second)
		if r.do(u.request(request{})); r.reached == "" {
			t.Error("the session has ended early")
		}
		time.Sleep(2 * time.Second)
		if resp := r.do(u.request(request{})); r.reached != "" || resp.StatusCode != 303 {
			t.Errorf("a use has extended the session: %s", resp.Status)
		}
	})
}

// A user who leaves the file of tokens, or gets another role there, does so in open sessions too.
func TestSessions_FollowTheFileOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withTokens)
		u := user{cookies: r.login(annsToken)}
		const bens = "token-of-ben-who-is-new"
		r.write("tokens", line("ann", "viewer", annsToken)+line("ben", "operator", bens))
		time.Sleep(2 * time.Second)
		if r.do(u.request(request{})); r.identity.Role != access.Viewer || r.identity.MayAct {
			t.Errorf("the session is that of %+v", r.identity)
		}
		r.login(bens)
		r.write("tokens", line("ben", "operator", bens))
		time.Sleep(2 * time.Second)
		if r.do(u.request(request{})); r.reached != "" {
			t.Error("the session is open")
		}
		r.write("tokens", line("ann", "operator", "another-token-of-ann-x")+line("ben", "operator", bens))
		time.Sleep(2 * time.Second)
		if r.do(u.request(request{})); r.reached != "" {
			t.Error("a session of an old token is open")
		}
	})
}

// A user with many sessions ends the oldest of these, and none of another user.
func TestSessions_AUserEndsNoSessionsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withTokens)
		const bens = "token-of-ben-who-signs-in-often"
		r.write("tokens", line("ann", "operator", annsToken)+line("ben", "viewer", bens))
		time.Sleep(2 * time.Second)
		ann, ben := user{cookies: r.login(annsToken)}, user{cookies: r.login(bens)}
		for range 1100 {
			time.Sleep(time.Millisecond)
			r.login(bens)
		}
		if r.do(ann.request(request{})); r.identity.Name != "ann" {
			t.Error("the session of ann has ended")
		}
		if r.do(ben.request(request{})); r.reached != "" {
			t.Error("the oldest session of ben is open")
		}
	})
}

func TestLogin_AnAddressThatGuessesMustWait(t *testing.T) {
	for name, row := range map[string]struct {
		identity         func(*rig, *config.Console)
		guess, valid     func(i int) request
		success, failure int
	}{
		"form": {withTokens,
			func(i int) request {
				return request{method: "POST", path: "/login", form: url.Values{"token": {fmt.Sprint("a-guess-of-a-token-", i)}}}
			},
			func(int) request {
				return request{method: "POST", path: "/login", form: url.Values{"token": {annsToken}}}
			}, 303, 401},
		"bearer": {withTokens,
			func(i int) request {
				return request{path: "/api/v1/status", header: map[string]string{"Authorization": fmt.Sprint("Bearer a-guess-of-a-token-", i)}}
			},
			func(int) request {
				return request{path: "/api/v1/status", header: map[string]string{"Authorization": "Bearer " + annsToken}}
			}, 200, 401},
		"basic": {withPasswords,
			func(i int) request {
				return request{header: map[string]string{"Authorization": basic("ann", fmt.Sprint(i))}}
			},
			func(int) request {
				return request{header: map[string]string{"Authorization": basic("ann", "secret of ann")}}
			}, 200, 401},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, row.identity)
				for i := range 100 { // logins that succeed are not limited
					if resp := r.do(row.valid(i)); resp.StatusCode != row.success {
						t.Fatalf("valid login %d answers %s", i, resp.Status)
					}
				}
				for i := range 30 {
					if resp := r.do(row.guess(i)); resp.StatusCode != row.failure {
						t.Fatalf("guess %d answers %s", i, resp.Status)
					}
				}
				for _, q := range []request{row.guess(30), row.valid(0)} {
					resp := r.do(q)
					if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || r.reached != "" || len(resp.Cookies()) > 0 {
						t.Errorf("after 30 guesses the next answers %s", resp.Status)
					}
				}
				q := row.valid(0)
				q.from = "127.0.0.2:1"
				if resp := r.do(q); resp.StatusCode != row.success {
					t.Errorf("another address gets %s", resp.Status)
				}
				time.Sleep(time.Second)
				if resp := r.do(row.valid(0)); resp.StatusCode != row.success {
					t.Errorf("a second later a valid login answers %s", resp.Status)
				}
				if resp := r.do(row.guess(31)); resp.StatusCode != row.failure {
					t.Errorf("a second later a guess answers %s", resp.Status)
				}
				if resp := r.do(row.guess(32)); resp.StatusCode != 429 {
					t.Errorf("a second guess in that second answers %s", resp.Status)
				}
				if lines := strings.Count(r.log.String(), `level=WARN msg="console login failed" address=127.0.0.1`); lines != 31 {
					t.Errorf("%d lines tell of failed logins, want 31", lines)
				}
			})
		})
	}
}

// A session is not a guess: it goes on while its address guesses.
func TestSessions_GoOnWhileTheirAddressGuesses(t *testing.T) {
	r := newRig(t, withTokens)
	cookies := r.login(annsToken)
	for range 40 {
		r.do(request{method: "POST", path: "/login", form: url.Values{"token": {"a-guess-of-a-token-x"}}})
	}
	if r.page.Reason != access.TooMany || r.page.Status != 429 {
		t.Errorf("the form says %+v", r.page)
	}
	if r.do(request{cookies: cookies}); r.reached == "" {
		t.Error("the session is refused")
	}
}

// hostile are values of next that lead somewhere else.
var hostile = []string{
	"https://evil.example", "http://evil.example/", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "/%5Cevil.example", "/%5cevil.example", "/%2Fevil.example",
	"/%2f%2fevil.example", "javascript:alert(1)", "data:text/html,x", "evil.example", "./x", "../x", "/../x", "/a/../../x", "?x", "#x", "/x#y", "", " /x", "\t//evil.example", "/\t/evil.example",
	"/x\r\nSet-Cookie: a=b", "/x\x00", "/\x7f", "http:/evil.example", "http:evil.example", "//user@evil.example/x", "/login", "/login?next=/x", "/logout", "/x%", "/x//y", "/" + strings.Repeat("x", 2000),
}

func TestLogin_LeadsToPagesOfThisConsoleOnly(t *testing.T) {
	r := newRig(t, withTokens)
	cookies := r.login(annsToken)
	for _, next := range hostile {
		q := request{path: "/login?next=" + url.QueryEscape(next)}
		if r.do(q); r.page.Next != "" {
			t.Errorf("the form has next %q for %q", r.page.Next, next)
		}
		q.cookies = cookies
		if got := r.do(q).Header.Get("Location"); got != "/" {
			t.Errorf("a session leads to %q for %q", got, next)
		}
		resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {annsToken}, "next": {next}}})
		if got := resp.Header.Get("Location"); got != "/" {
			t.Errorf("the login leads to %q for %q", got, next)
		}
	}
	for next, want := range map[string]string{
		"/": "/", "/plans/7": "/plans/7", "/dead-letters?cause=a%20b&since=1h": "/dead-letters?cause=a%20b&since=1h", "/x?next=//evil.example": "/x?next=//evil.example", "/a%20b": "/a%20b", "/x/": "/x/",
	} {
		resp := r.do(request{method: "POST", path: "/login", form: url.Values{"token": {annsToken}, "next": {next}}})
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("the login leads to %q, want %q", got, want)
		}
	}
	below := newRig(t, func(r *rig, s *config.Console) { withTokens(r, s); s.BasePath = "/orderclose" })
	for _, next := range append(hostile, "/", "/x", "/orderclosex", "/orderclose", "/orderclose/login", "/orderclose/../x", "/orderclose//x") {
		resp := below.do(request{method: "POST", path: "/orderclose/login", form: url.Values{"token": {annsToken}, "next": {next}}})
		if got := resp.Header.Get("Location"); got != "/orderclose/" {
			t.Errorf("below a base path the login leads to %q for %q", got, next)
		}
	}
}

// FuzzLogin_Next: whatever next is, a browser stays on this console.
func FuzzLogin_Next(f *testing.F) {
	for _, next := range hostile {
		f.Add(next)
	}
	f.Add("/orderclose/dead-letters?cause=x")
	base, err := url.Parse("https://console.example/orderclose/login")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, next string) {
		r := newRig(t, func(r *rig, s *config.Console) { withTokens(r, s); s.BasePath = "/orderclose" })
		resp := r.do(request{path: "/orderclose/login?next=" + url.QueryEscape(next)})
		if resp.StatusCode != 200 || r.page.Next == "" {
			return
		}
		// Browsers read backslashes as slashes, and skip tabs and line ends.
		to, err := base.Parse(strings.NewReplacer("\\", "/", "\t", "", "\r", "", "\n", "").Replace(r.page.Next))
		if err != nil || to.Scheme != "https" || to.Host != "console.example" || !strings.HasPrefix(to.Path, "/orderclose/") {
			t.Errorf("%q leads to %v, %v", next, to, err)
		}
	})
}
