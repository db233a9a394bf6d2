package notify_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/notify/internal/notify"
)

// The example files send each severity where they say: through Alertmanager itself to WeCom and mail, and through orderclose-notify to DingTalk, SMS and
// calls. Only addresses and waiting times differ from the files. DingTalk is away at first, and Alertmanager retries.
func TestNotify_AlertmanagerReachesPeopleBySeverity(t *testing.T) {
	program := lookAlertmanager(t)
	d, weCom, mail := newRobot(t), newWeCom(t), newMailServer(t)
	sms, call := newProvider(t), newProvider(t)
	d.say(`{"errcode":-1,"errmsg":"busy"}`)

	secrets := map[string]string{"dingtalk_url": d.address(), "dingtalk_secret": robotSecret, "sms_token": "sms-token",
		"voice_token": "voice-token", "smtp_password": "x"}
	dir := t.TempDir()
	for name, value := range secrets {
		write(t, filepath.Join(dir, name), value)
	}
	receivers := edit(t, "notify.yaml", "https://sms.example", sms.URL, "https://voice.example", call.URL, "/run/secrets/", dir+"/")
	c := must.Get(notify.ParseConfig("notify.yaml", []byte(receivers)))(t)
	n := must.Get(notify.New(notify.Options{Config: c}))(t)
	adapter := httptest.NewServer(n.Handler())
	t.Cleanup(adapter.Close)

	file := filepath.Join(dir, "alertmanager.yml")
	write(t, file, edit(t, "alertmanager.yml", "http://notify:9464", adapter.URL, "mail.example:587", mail.address(), "/run/secrets/", dir+"/",
		"group_wait: 30s", "group_wait: 100ms", "group_wait: 10s", "group_wait: 100ms",
		"global:", "global:\n  smtp_require_tls: false\n  wechat_api_url: "+weCom.URL+"/cgi-bin/"))
	alertmanager := startAlertmanager(t, program, file, dir)

	post(t, alertmanager+"/api/v2/alerts", `[
		{"labels": {"alertname": "OrdercloseRoleMissing", "severity": "page"}, "annotations": {"summary": "No relay serves any partition"}},
		{"labels": {"alertname": "OrdercloseTopicDrift", "severity": "ticket"}, "annotations": {"summary": "A topic differs"}}]`)
	eventually(t, "DingTalk was tried", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.times) > 0 })
	d.say("")
	const page, ticket = "No relay serves any partition", "A topic differs"
	for _, want := range []struct {
		name       string
		texts      func() string
		page, both bool
	}{
		{"call", call.all, true, false}, {"sms", sms.all, true, false},
		{"mail", mail.all, false, false},
		{"DingTalk", d.all, true, true}, {"WeCom", weCom.all, true, true},
	} {
		wanted, other := page, ticket
		if !want.page {
			wanted, other = ticket, page
		}
		if want.name == "call" { // it says the name only
			wanted, other = "OrdercloseRoleMissing", "OrdercloseTopicDrift"
		}
		eventually(t, want.name+" has "+wanted, func() bool { return strings.Contains(want.texts(), wanted) })
		if want.both {
			eventually(t, want.name+" has "+other, func() bool { return strings.Contains(want.texts(), other) })
		} else if strings.Contains(want.texts(), other) {
			t.Errorf("%s has %s too", want.name, other)
		}
	}
}

// lookAlertmanager returns Alertmanager's program: prometheus-alertmanager is Debian's name of it.
func lookAlertmanager(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"prometheus-alertmanager", "alertmanager"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	must.That(t, os.Getenv("REQUIRE_REAL") != "1", "no Alertmanager: run deploy/native/install.sh amtool")
	t.Skip("no Alertmanager")
	return ""
}

// startAlertmanager starts Alertmanager on a free port and returns its URL. It ends with the test.
func startAlertmanager(t *testing.T, program, file, dir string) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	l.Close()
	var logs testkit.LogBuffer
	cmd := exec.Command(program, "--config.file="+file, "--storage.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = &logs, &logs
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	eventually(t, "Alertmanager is ready", func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + address
}

func post(t *testing.T, url, body string) {
	t.Helper()
	resp := must.Get(http.Post(url, "application/json", strings.NewReader(body)))(t)
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	must.That(t, resp.StatusCode == http.StatusOK, "%s: %s %s", url, resp.Status, answer)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("not after a minute: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// edit returns an example file with replacements, each of which must occur.
func edit(t *testing.T, name string, oldNew ...string) string {
	t.Helper()
	data := must.Get(os.ReadFile("../../../deploy/alerts/" + name))(t)
	for i := 0; i < len(oldNew); i += 2 {
		must.That(t, bytes.Contains(data, []byte(oldNew[i])), "%s has no %q", name, oldNew[i])
		data = bytes.ReplaceAll(data, []byte(oldNew[i]), []byte(oldNew[i+1]))
	}
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

func (r *robot) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.messages)
}

func (p *provider) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bodies
}

// weCom stands in for the API of WeCom.
type weCom struct {
	*httptest.Server
	mu   sync.Mutex
	text string
}

func newWeCom(t *testing.T) *weCom {
	t.Helper()
	w := &weCom{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case q.URL.Path == "/cgi-bin/gettoken" && q.URL.Query().Get("corpsecret") != "":
			fmt.Fprint(answer, `{"errcode":0,"errmsg":"ok","access_token":"t"}`)
		case q.URL.Path == "/cgi-bin/message/send" && q.URL.Query().Get("access_token") == "t":
			w.text += string(body)
			fmt.Fprint(answer, `{"errcode":0,"errmsg":"ok"}`)
		default:
			answer.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *weCom) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// mailServer stands in for an SMTP server. It accepts every mail.
type mailServer struct {
	listener net.Listener
	mu       sync.Mutex
	text     string
}

func newMailServer(t *testing.T) *mailServer {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	m := &mailServer{listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go m.serve(c)
		}
	}()
	return m
}

func (m *mailServer) address() string { return m.listener.Addr().String() }

func (m *mailServer) serve(c net.Conn) {
	defer c.Close()
	fmt.Fprint(c, "220 mail\r\n")
	lines, data := bufio.NewScanner(c), false
	for lines.Scan() {
		line := lines.Text()
		switch verb, _, _ := strings.Cut(line, " "); {
		case data && line == ".":
			data = false
			fmt.Fprint(c, "250 accepted\r\n")
		case data:
			m.mu.Lock()
			m.text += line + "\n"
			m.mu.Unlock()
		case verb == "DATA":
			data = true
			fmt.Fprint(c, "354 go on\r\n")
		case verb == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		default:
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
}

func (m *mailServer) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text
}
