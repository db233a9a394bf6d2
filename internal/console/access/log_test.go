package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
)

func TestAudit_WritesOneLine(t *testing.T) {
	var log bytes.Buffer
	access.Audit(slog.New(slog.NewJSONHandler(&log, nil)), access.AuditLine{
		Who:    access.Identity{Name: "ann\nlevel=ERROR", Role: access.Operator, Address: netip.MustParseAddr("10.0.0.7")},
		Action: "redrive", Plan: "7", Selected: "cause=" + strings.Repeat("x", 600), Result: "12 redriven\n",
	})
	var got map[string]any
	if err := json.Unmarshal(log.Bytes(), &got); err != nil || strings.Count(log.String(), "\n") != 1 {
		t.Fatalf("%v: %s", err, log.String())
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "console action", "who": "ann\nlevel=ERROR", "role": "operator", "address": "10.0.0.7", "action": "redrive", "plan": "7", "selected": "cause=" + strings.Repeat("x", 494) + "…", "result": "12 redriven\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLog_HasRequestsWithoutQueryAndBody(t *testing.T) {
	r := newRig(t, withTokens)
	u := user{cookies: r.login(annsToken)}
	r.do(u.request(request{}))
	r.do(u.request(request{method: "POST", path: "/order?since=order-4711", form: url.Values{"id": {"order-4711"}}}))
	r.do(u.request(request{path: "/x%0Alevel=ERROR" + strings.Repeat("y", 300)}))
	log := r.log.String()
	for _, want := range []string{
		`level=DEBUG msg="console request" method=POST path=/login status=303 duration=`,
		`level=DEBUG msg="console request" method=GET path=/ status=200 duration=`,
		`level=DEBUG msg="console request" method=POST path=/order status=200 duration=`,
		`path="/x\nlevel=ERRORyyyy`,
		`level=INFO msg="console login" who=ann role=operator address=127.0.0.1`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no line %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "4711") || strings.Contains(log, strings.Repeat("y", 201)) || strings.Contains(log, "\nlevel=ERROR") {
		t.Errorf("the log has a query, a body or a long path:\n%s", log)
	}
}

// secrets are the marked secrets of one console: a text that has one of them shows it.
type secrets map[string]string

func (s secrets) find(t *testing.T, where, text string) {
	t.Helper()
	for name, secret := range s {
		for _, form := range []string{secret, url.QueryEscape(secret), fmt.Sprintf("%x", secret)} {
			if secret != "" && strings.Contains(text, form) {
				t.Errorf("%s shows %s:\n%s", where, name, text)
			}
		}
	}
}

// Valid and wrong secrets appear in no log line, response or error.
func TestSecrets_AreShownNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secrets{
			"a token": annsToken, "a wrong token": "wrong-token-MARK1-MARK1", "a short token": "MARK2", "a password": "secret of ann", "a wrong password": "MARK3 MARK3",
			"a hash of a token": strings.TrimSpace(strings.TrimPrefix(line("ann", "operator", annsToken), "ann operator sha256:")), "a misplaced password": "MARK4-MARK4",
		}
		r := newRig(t, withTokens)
		p := newRig(t, withPasswords)
		see := func(rig *rig, q request) {
			t.Helper()
			resp := rig.do(q)
			header := resp.Header.Clone()
			header.Del("Set-Cookie") // has the session, which is no secret of the browser
			s.find(t, fmt.Sprintf("the response to %s %s", q.method, q.path), fmt.Sprint(header, body(t, resp), rig.page))
		}
		for _, token := range []string{annsToken, s["a wrong token"], s["a short token"]} {
			see(r, request{method: "POST", path: "/login", form: url.Values{"token": {token}, "next": {"/sweeps"}}})
			see(r, request{method: "POST", path: "/login", form: url.Values{"token": {token}}, header: map[string]string{"Sec-Fetch-Site": "cross-site"}})
			for _, path := range []string{"/", "/api/v1/status"} {
				see(r, request{path: path, header: map[string]string{"Authorization": "Bearer " + token}})
				see(r, request{path: path, header: map[string]string{"Authorization": token}})
				see(r, request{path: path, host: "evil.example", header: map[string]string{"Authorization": "Bearer " + token}})
			}
		}
		cookies := r.login(annsToken)
		s["a session"] = cookies[0].Value
		see(r, request{cookies: cookies})
		see(r, request{method: "POST", path: "/plans", cookies: cookies, form: url.Values{}})
		see(r, request{method: "POST", path: "/plans", cookies: cookies})
		for _, auth := range []string{basic("ann", s["a password"]), basic("ann", s["a wrong password"]), basic(s["a misplaced password"], ""), "Basic !" + s["a password"]} {
			see(p, request{header: map[string]string{"Authorization": auth}})
			see(p, request{path: "/api/v1/status", header: map[string]string{"Authorization": auth}})
		}
		for _, rig := range []*rig{r, p} {
			rig.write("tokens", "ann operator "+annsToken+"\n"+s["a misplaced password"])
			rig.write("passwords", "ann:"+s["a password"])
			time.Sleep(2 * time.Second)
			see(rig, request{})
			see(rig, request{header: map[string]string{"Authorization": basic("ann", "x")}})
			see(rig, request{header: map[string]string{"Authorization": "Bearer " + annsToken}})
			s.find(t, "the log", rig.log.String())
		}
		if !strings.Contains(r.log.String(), "level=ERROR") || !strings.Contains(p.log.String(), "level=ERROR") {
			t.Error("the log does not report the broken files")
		}
		for name, secret := range s {
			for _, settings := range []config.Console{{TokensFile: secret}, {PasswordsFile: secret}} {
				settings.Listen = "127.0.0.1:9465"
				_, err := access.New(access.Options{Settings: settings, Login: nil})
				if err == nil {
					t.Errorf("%s is a file", name)
				}
				s.find(t, "an error of New", fmt.Sprintf("%v %v %#v", err, settings, settings))
			}
		}
	})
}

func TestFile_IsReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withTokens)
		status := func(token string) int {
			t.Helper()
			time.Sleep(time.Minute)
			return r.do(request{path: "/api/v1/status", header: map[string]string{"Authorization": "Bearer " + token}}).StatusCode
		}
		const bens = "token-of-ben-who-is-new"
		if status(bens) != 401 || status(annsToken) != 200 {
			t.Error("the file is not used")
		}
		r.write("tokens", line("ben", "viewer", bens))
		if status(bens) != 200 || status(annsToken) != 401 {
			t.Error("the changed file is not used")
		}
		r.write("tokens", "ann\n"+line("ann", "operator", annsToken))
		for range 3 {
			if status(bens) != 200 || status(annsToken) != 401 {
				t.Error("the last valid file is not used")
			}
		}
		if err := os.Remove(r.dir + "/tokens"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if status(bens) != 200 {
				t.Error("the last valid file is not used")
			}
		}
		r.write("tokens", strings.Repeat("# a comment\n", 100_000))
		if status(bens) != 200 {
			t.Error("the last valid file is not used")
		}
		r.write("tokens", line("ben", "viewer", bens))
		if status(bens) != 200 {
			t.Error("the repaired file is not used")
		}
		r.write("tokens", line("ann", "operator", annsToken))
		if status(bens) != 401 || status(annsToken) != 200 {
			t.Error("the changed file is not used")
		}
		var got []string
		for entry := range strings.Lines(r.log.String()) {
			if _, text, ok := strings.Cut(entry, `msg="users `); ok {
				got = append(got, strings.TrimSpace(text))
			}
		}
		const name = "ORDERCLOSE_CONSOLE_TOKENS_FILE"
		want := []string{
			`changed" variable=` + name,
			`rejected, keeping the previous ones" err="` + name + `: line 1: the line is not: name role sha256:HASH, with 64 hexadecimal digits; printf %s TOKEN | sha256sum prints them"`,
			`rejected, keeping the previous ones" err="` + name + ` names a file that cannot be read: no such file or directory; mount the file there or unset the variable"`,
			`rejected, keeping the previous ones" err="` + name + ` names a file that cannot be read: it is larger than 1 MiB; mount the file there or unset the variable"`,
			`valid again" variable=` + name,
			`changed" variable=` + name,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}
