package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
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
		Action: "redrive", Plan: "7", Selected: "cause=" + strings.Repeat("x", 600), Planned: 13, Handled: 12, Result: "12 redriven\n",
	})
	var got map[string]any
	if err := json.Unmarshal(log.Bytes(), &got); err != nil || strings.Count(log.String(), "\n") != 1 {
		t.Fatalf("%v: %s", err, log.String())
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "console action", "who": "ann\nlevel=ERROR", "role": "operator", "address": "10.0.0.7", "action": "redrive", "plan": "7", "selected": "cause=" + strings.Repeat("x", 494) + "…", "planned": 13.0, "handled": 12.0, "result": "12 redriven\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLog_HasRequestsWithoutQueryAndBody(t *testing.T) {
	r := newRig(t, withPasswords)
	u := ann()
	r.do(u.request(request{}))
	r.do(u.request(request{method: "POST", path: "/order?since=order-4711", form: url.Values{"id": {"order-4711"}}}))
	r.do(u.request(request{path: "/x%0Alevel=ERROR" + strings.Repeat("y", 300)}))
	log := r.log.String()
	for _, want := range []string{
		`level=DEBUG msg="console request" method=GET path=/ status=200 duration=`,
		`level=DEBUG msg="console request" method=POST path=/order status=200 duration=`,
		`path="/x\nlevel=ERRORyyyy`,
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
			"a password": "secret of ann", "a wrong password": "MARK3 MARK3", "a misplaced password": "MARK4-MARK4", "a hash": bcryptMark, "a name": "MARK5",
		}
		r := newRig(t, withPasswords)
		see := func(q request) {
			t.Helper()
			resp := r.do(q)
			s.find(t, fmt.Sprintf("the response to %s %s", q.method, q.path), fmt.Sprint(resp.Header, body(t, resp)))
		}
		for _, auth := range []string{
			basic("ann", s["a password"]), basic("ann", s["a wrong password"]), basic(s["a misplaced password"], ""), "Basic !" + s["a password"], "Bearer " + s["a misplaced password"],
		} {
			for _, path := range []string{"/", "/api/v1/status"} {
				see(request{path: path, header: map[string]string{"Authorization": auth}})
				see(request{path: path, host: "evil.example", header: map[string]string{"Authorization": auth}})
			}
		}
		see(ann().request(request{method: "POST", path: "/plans", form: url.Values{"x": {s["a misplaced password"]}}}))
		for _, text := range []string{
			"MARK4-MARK4", "basic_auth_users: MARK4-MARK4", "basic_auth_users: {ann: MARK4-MARK4}", "basic_auth_users: {ann: [MARK4-MARK4]}", "MARK4-MARK4: x",
			"basic_auth_users: {\"MARK5\\n\": " + bcryptMark + "}", "basic_auth_users: {ann: " + bcryptMark + ", ann: MARK4-MARK4}", "basic_auth_users:\n ann:" + bcryptMark, "*MARK4-MARK4", "\"MARK4-MARK4",
			"tls_server_config: {cert: MARK4-MARK4, key: MARK4-MARK4}", "tls_server_config: {cert_file: MARK4-MARK4, key_file: MARK4-MARK4}", "tls_server_config: {min_version: MARK4-MARK4}",
			"tls_server_config: {cipher_suites: [MARK4-MARK4]}", "tls_server_config: {client_auth_type: MARK4-MARK4}", "http_server_config: {headers: {MARK4-MARK4: MARK4-MARK4}}",
			"ann operator sha256:MARK4-MARK4", "ann:" + bcryptMark,
		} {
			path := r.write("web.yml", text)
			time.Sleep(2 * time.Second)
			see(ann().request(request{}))
			settings := config.Console{Listen: "127.0.0.1:9465", WebConfigFile: path}
			_, err := access.New(access.Options{Settings: settings})
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
			s.find(t, "an error of New", fmt.Sprintf("%v %v %#v", err, settings, settings))
		}
		s.find(t, "the log", r.log.String())
		if !strings.Contains(r.log.String(), "level=ERROR") {
			t.Error("the log does not report the broken files")
		}
		for name, secret := range s {
			settings := config.Console{Listen: "127.0.0.1:9465", WebConfigFile: secret}
			_, err := access.New(access.Options{Settings: settings})
			if err == nil {
				t.Errorf("%s is a file", name)
			}
			s.find(t, "an error of New", fmt.Sprintf("%v %v %#v", err, settings, settings))
		}
	})
}

// bcryptMark is a hash.
const bcryptMark = "$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki"
