package notify_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/notify/internal/notify"
)

// rig is a Notifier with a file of its own, whose answers a test reads.
type rig struct {
	n    *notify.Notifier
	logs testkit.LogBuffer
}

func newRig(t *testing.T, yaml string) *rig {
	t.Helper()
	c := must.Get(notify.ParseConfig("notify.yaml", []byte(yaml)))(t)
	r := &rig{}
	r.n = must.Get(notify.New(notify.Options{Config: c, Logger: slog.New(slog.NewTextHandler(&r.logs, nil))}))(t)
	return r
}

// post posts what Alertmanager would, and returns the answer.
func (r *rig) post(receiver, body string) (status int, answer string) {
	w := httptest.NewRecorder()
	r.n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/alert/"+receiver, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func (r *rig) get(path string) (status int, answer string) {
	w := httptest.NewRecorder()
	r.n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// secretFile writes a file with a value and returns its path.
func secretFile(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
	return path
}

// team returns a notify.yaml with the receiver team, a robot.
func team(t *testing.T, address, secret string, more ...string) string {
	return fmt.Sprintf("receivers:\n  team:\n    dingtalk:\n      url_file: %s\n      secret_file: %s\n      %s\n",
		secretFile(t, address), secretFile(t, secret), strings.Join(more, "\n      "))
}

// alerts returns what Alertmanager posts for n alerts.
func alerts(status string, n int) string {
	var list []map[string]any
	for i := range n {
		list = append(list, map[string]any{"status": status, "labels": map[string]string{"alertname": "OrdercloseRoleMissing"},
			"annotations": map[string]string{"summary": fmt.Sprintf("Alert number %d", i), "description": "Start a relay.",
				"runbook_url": "https://wiki.example/runbook#relay"},
			"startsAt": time.Now()})
	}
	body, _ := json.Marshal(map[string]any{"version": "4", "status": status, "groupLabels": map[string]string{"alertname": "OrdercloseRoleMissing"},
		"alerts": list})
	return string(body)
}

func TestNotify_SendsSignedMessagesToDingTalk(t *testing.T) {
	d := newRobot(t)
	r := newRig(t, team(t, d.address(), robotSecret, `at: ["13800000000"]`))
	if status, answer := r.post("team", alerts("firing", 2)); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	m, _ := d.last()
	expect.Equal(t, m.Markdown.Title, "[FIRING:2] OrdercloseRoleMissing", "title")
	for _, want := range []string{"**Alert number 0**", "Start a relay.", "(https://wiki.example/runbook#relay)", "Alert number 1", "@13800000000"} {
		expect.That(t, strings.Contains(m.Markdown.Text, want), "the text has no %q:\n%s", want, m.Markdown.Text)
	}
	expect.Equal(t, len(m.At.AtMobiles), 1, "mentions %+v", m.At)
	if status, _ := r.post("team", alerts("resolved", 1)); status != 200 {
		t.Error("a resolved alert is not sent")
	}
	if m, _ := d.last(); m.Markdown.Title != "[RESOLVED:1] OrdercloseRoleMissing" || !strings.Contains(m.Markdown.Text, "**Resolved: Alert number 0**") ||
		len(m.At.AtMobiles) != 0 {
		t.Errorf("%+v", m)
	}
}

// DingTalk answers 200 to everything. Alertmanager must retry what may help, and nothing else.
func TestNotify_TellsAlertmanagerWhetherARetryHelps(t *testing.T) {
	d := newRobot(t)
	for _, c := range []struct {
		name, address, secret, answer string
		status                        int
		want                          string
	}{
		{"accepted", d.address(), robotSecret, "", 200, "sent"},
		{"another secret", d.address(), "SEC-of-another", "", 422, "secret_file"},
		{"another token", strings.Replace(d.address(), robotToken, "x", 1), robotSecret, "", 422, "token is not exist"},
		{"too fast", d.address(), robotSecret, `{"errcode":130101,"errmsg":"send too fast"}`, 503, "130101"},
		{"busy", d.address(), robotSecret, `{"errcode":-1,"errmsg":"busy"}`, 503, "busy"},
		{"no JSON", d.address(), robotSecret, "<html>", 503, "no errcode"},
		{"no code", d.address(), robotSecret, "{}", 503, "no errcode"},
		{"nobody listens", "http://127.0.0.1:1/robot/send?access_token=" + robotToken, robotSecret, "", 503, "no answer"},
	} {
		d.say(c.answer)
		r := newRig(t, team(t, c.address, c.secret))
		status, answer := r.post("team", alerts("firing", 1))
		expect.That(t, status == c.status && strings.Contains(answer, c.want), "%s: %d %q; want %d and %q", c.name, status, answer, c.status, c.want)
		for _, secret := range []string{robotToken, robotSecret} {
			all := answer + r.logs.String()
			expect.That(t, !strings.Contains(all, secret), "%s: the secret %s is in %s", c.name, secret, all)
		}
		result := map[int]string{200: "sent", 422: "refused", 503: "failed"}[c.status]
		if _, m := r.get("/metrics"); !strings.Contains(m, fmt.Sprintf("orderclose_notifications_total{receiver=\"team\",result=%q} 1", result)) {
			t.Errorf("%s: no %s is counted", c.name, result)
		}
	}
}

func TestNotify_RefusesWhatAlertmanagerDoesNotSend(t *testing.T) {
	r := newRig(t, team(t, newRobot(t).address(), robotSecret))
	for _, c := range []struct {
		name, receiver, body string
		status               int
	}{
		{"an unknown receiver", "crew", alerts("firing", 1), 404},
		{"no JSON", "team", "hello", 400},
		{"no alerts", "team", `{"status":"firing"}`, 400},
		{"another JSON", "team", `[1]`, 400},
		{"too large", "team", `{"status":"` + strings.Repeat("x", 5<<20) + `"}`, 413},
	} {
		status, answer := r.post(c.receiver, c.body)
		expect.That(t, status == c.status, "%s: %d %s, want %d", c.name, status, answer, c.status)
	}
	if status, _ := r.get("/alert/team"); status != 405 {
		t.Errorf("a GET gets %d", status)
	}
}

// A robot that gets more is silent for ten minutes.
func TestNotify_SendsAtMost20MessagesAMinuteToARobot(t *testing.T) {
	d := newRobot(t)
	r := newRig(t, team(t, d.address(), robotSecret))
	refused := 0
	for range 30 {
		if status, _ := r.post("team", alerts("firing", 1)); status == 503 {
			refused++
		}
	}
	_, n := d.last()
	expect.That(t, n+refused == 30 && n <= 20 && n != 0 && len(d.times) == n, "%d sent of %d requests, %d refused", n, len(d.times), refused)
}

func TestNotify_LongMessagesNameTheRest(t *testing.T) {
	d := newRobot(t)
	r := newRig(t, team(t, d.address(), robotSecret))
	if status, answer := r.post("team", alerts("firing", 500)); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	m, _ := d.last()
	var shown, rest int
	shown = strings.Count(m.Markdown.Text, "Alert number")
	_, err := fmt.Sscanf(m.Markdown.Text[strings.LastIndex(m.Markdown.Text, "… and"):], "… and %d more", &rest)
	expect.That(t, err == nil && shown+rest == 500 && shown >= 10, "%d shown, %d more, %v", shown, rest, err)
	expect.That(t, strings.HasPrefix(m.Markdown.Title, "[FIRING:500]"), "title %q", m.Markdown.Title)
	truncated := strings.Replace(alerts("firing", 3), `"version":"4"`, `"version":"4","truncatedAlerts":7`, 1)
	if status, answer := r.post("team", truncated); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if m, _ := d.last(); !strings.HasSuffix(m.Markdown.Text, "… and 7 more") {
		t.Errorf("Alertmanager has left out 7: %s", m.Markdown.Text)
	}
	long := strings.Replace(alerts("firing", 2), "Alert number 0", strings.Repeat("长", 30_000), 1)
	if status, answer := r.post("team", long); status != 200 {
		t.Fatalf("one long alert: %d %s", status, answer)
	}
	if m, _ := d.last(); len([]rune(m.Markdown.Text)) > 4100 || !strings.HasSuffix(m.Markdown.Text, "…\n\n… and 1 more") {
		t.Errorf("one long alert: %d characters", len([]rune(m.Markdown.Text)))
	}
}

// provider stands in for a provider of SMS.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	request *http.Request
	body    string // of the last request
	bodies  string // of all requests
	status  int
	answer  string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{status: 200, answer: `{"code": 0}`}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.request, p.body, p.bodies = q, string(body), p.bodies+string(body)
		w.WriteHeader(p.status)
		fmt.Fprint(w, strings.ReplaceAll(p.answer, "ECHO", q.Header.Get("Authorization")+" "+p.body))
	}))
	t.Cleanup(p.Close)
	return p
}

func TestNotify_SendsAnyRequestByTemplates(t *testing.T) {
	p := newProvider(t)
	r := newRig(t, fmt.Sprintf(`receivers:
  sms:
    http:
      url: %s/send?user=shop
      method: PUT
      secret_file: %s
      headers: {Authorization: 'Bearer {{ .Secret }}', Content-Type: application/json}
      body: '{"text": {{ json .Text }}, "title": {{ json .Title }}}'
      accepted: '"code": *0\b'
      alert: '{{ .Labels.alertname }} "<{{ .Annotations.summary }}>" {{ .Labels.missing }}'
      limit: 60
`, p.URL, secretFile(t, "sms-password")))
	status, answer := r.post("sms", alerts("firing", 3))
	must.That(t, status == 200, "%d %s", status, answer)
	expect.That(t, p.request.Method == "PUT" && p.request.URL.RawQuery == "user=shop" && p.request.Header.Get("Authorization") == "Bearer sms-password",
		"%s %s %v", p.request.Method, p.request.URL, p.request.Header)
	if want := `{"text": "OrdercloseRoleMissing \"<Alert number 0>\"\n\n… and 2 more", "title": "[FIRING:3] OrdercloseRoleMissing"}`; p.body != want {
		t.Errorf("body %s, want %s", p.body, want)
	}
	for _, c := range []struct {
		status int
		answer string
		want   int
	}{
		{200, `{"code": 7, "why": "no money, ECHO"}`, 503},
		{500, "ECHO", 503}, {429, "slow down", 503}, {401, "who is ECHO?", 422}, {302, "elsewhere", 422},
	} {
		p.status, p.answer = c.status, c.answer
		status, answer := r.post("sms", alerts("firing", 1))
		expect.That(t, status == c.want, "%d %s: answered %d %s, want %d", c.status, c.answer, status, answer, c.want)
		all := answer + r.logs.String()
		expect.That(t, !strings.Contains(all, "sms-password"), "the secret is in %s", all)
	}
}

func TestNotify_ReadsSecretsForEachMessage(t *testing.T) {
	d := newRobot(t)
	file := secretFile(t, "SEC-old")
	r := newRig(t, fmt.Sprintf("receivers: {team: {dingtalk: {url: %q, secret_file: %s}}}", d.address(), file))
	if status, _ := r.post("team", alerts("firing", 1)); status != 422 {
		t.Errorf("the old secret: %d", status)
	}
	must.Do(t, os.WriteFile(file, []byte(robotSecret), 0o600))
	if status, answer := r.post("team", alerts("firing", 1)); status != 200 {
		t.Errorf("the new secret: %d %s", status, answer)
	}
	if status, answer := r.get("/-/ready"); status != 200 || answer != "ready\n" {
		t.Errorf("%d %q", status, answer)
	}
	must.Do(t, os.Remove(file))
	if status, answer := r.get("/-/ready"); status != 503 || !strings.Contains(answer, "receiver team: secret_file: open "+file) {
		t.Errorf("without the file: %d %q", status, answer)
	}
	if status, _ := r.post("team", alerts("firing", 1)); status != 422 {
		t.Errorf("without the file: %d", status)
	}
}

func TestNew_NamesTheLineOfAWrongTemplate(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"receivers:\n  sms:\n    http:\n      url: http://x\n      body: '{{ .Txt }}'\n", "notify.yaml:5:13: receivers.sms.http.body: template"},
		{"receivers:\n  sms:\n    http:\n      url: http://x\n      alert: '{{ if }}'\n      body: x\n", "notify.yaml:5:14: receivers.sms.http.alert: template"},
		{"receivers:\n  sms:\n    http:\n      url: http://x\n      headers: {A: '{{ nothing }}'}\n      body: x\n",
			`notify.yaml:5:20: receivers.sms.http.headers.A: template`},
		{"receivers: {sms: {http: {url: http://x, secret_file: /nowhere, body: x}}}", "receiver sms: secret_file: open /nowhere"},
		{"receivers: {sms: {http: {url_file: " + secretFile(t, "ftp://x") + ", body: x}}}", "receiver sms: the URL: it is not http://host/path"},
	} {
		f, err := notify.ParseConfig("notify.yaml", []byte(c.yaml))
		if err != nil {
			t.Errorf("%s: %v", c.yaml, err)
			continue
		}
		if _, err := notify.New(notify.Options{Config: f}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.yaml, err, c.want)
		}
	}
}

// A page of another site, opened on the machine of the notifier, must not send messages. The host name of such a page may resolve to the loopback.
func TestNotify_SendsNothingForABrowser(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a message was sent") }))
	defer provider.Close()
	r := newRig(t, "receivers:\n  sms:\n    http: {url: \""+provider.URL+"\", body: '{{.Text}}'}\n")
	for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		req := httptest.NewRequest(http.MethodPost, "/alert/sms", strings.NewReader(alerts("firing", 1)))
		req.Header.Set("Content-Type", "text/plain")
		req.Header.Set(header, value)
		w := httptest.NewRecorder()
		r.n.Handler().ServeHTTP(w, req)
		expect.That(t, w.Code == http.StatusForbidden, "%s: %d %s", header, w.Code, w.Body)
	}
}
