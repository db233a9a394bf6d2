package access_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// serve serves a rig on a real listener.
func serve(t *testing.T, r *rig) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(r.handler)
	t.Cleanup(server.Close)
	return server
}

// raw sends the bytes of a request and returns the status of the response.
func raw(t *testing.T, server *httptest.Server, text string) int {
	t.Helper()
	conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer conn.Close()
	must.Get(io.WriteString(conn, text))(t)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.That(t, err == nil, "%q: %v", text, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// A request target may have a host too. It counts, and the header Host does not.
func TestServer_ChecksTheHostOfTheRequestTarget(t *testing.T) {
	server := serve(t, newRig(t, anonymous))
	for _, row := range []struct {
		request string
		status  int
	}{
		{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		{"GET / HTTP/1.1\r\nHost: \r\n\r\n", 421},
		{"GET / HTTP/1.0\r\n\r\n", 421},
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421},
		{"GET http://localhost:1/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200},
		{"GET http://localhost@evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421},
		{"GET http://evil.example/static/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421},
		{"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		{"CONNECT localhost:9465 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
		{"GET /static/../ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		{"GET /%2e%2e/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
	} {
		if status := raw(t, server, row.request); status != row.status {
			t.Errorf("%q answers %d, want %d", row.request, status, row.status)
		}
	}
}

// A form that is announced larger than the limit is refused before it has arrived.
func TestServer_RefusesAHugeFormOfNobody(t *testing.T) {
	server := serve(t, newRig(t, withPasswords))
	head := "POST /language HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	for _, text := range []string{
		head + "Content-Length: 1000000000\r\n\r\nlang=" + strings.Repeat("x", 20<<10),
		head + "Transfer-Encoding: chunked\r\n\r\n5000\r\n" + strings.Repeat("x", 0x5000) + "\r\n",
	} {
		expect.Equal(t, raw(t, server, text), 413, "status")
	}
}

// deadlines keeps the read deadlines of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// A body must arrive within 30 s. A handler may take longer, and so may server-sent events.
func TestServer_ASlowBodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, anonymous)
		limit := time.Now().Add(30 * time.Second)
		for _, row := range []struct {
			method, site string
			want         []time.Time
		}{
			{"GET", "", nil}, {"POST", "cross-site", []time.Time{limit}}, {"POST", "same-origin", []time.Time{limit, {}}},
		} {
			h := httptest.NewRequest(row.method, "/order", strings.NewReader("id=1"))
			h.Host, h.RemoteAddr = "localhost", "127.0.0.1:1"
			h.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			h.Header.Set("Sec-Fetch-Site", row.site)
			d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r.handler.ServeHTTP(d, h)
			expect.Same(t, d.set, row.want, "%s from %q: deadlines", row.method, row.site)
		}
	})
}

// Server-sent events arrive while the handler runs, through the log of requests too.
func TestServer_EventsAreFlushed(t *testing.T) {
	r := newRig(t, anonymous)
	end := make(chan struct{})
	r.handler = r.gate.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-end
	}))
	resp := must.Get(http.Get(serve(t, r).URL + "/live"))(t)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	close(end)
	expect.That(t, err == nil && line == "data: 1\n", "got %q, %v", line, err)
}

// A stream of events does not outlive its user for long: the browser must ask again.
func TestGate_AStreamOfEventsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withPasswords)
		u := ann()
		r.handler = r.gate.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
		for _, accept := range []string{"text/event-stream", "*/*", ""} { // whatever the client says
			began := time.Now()
			r.do(u.request(request{path: "/live", header: map[string]string{"Accept": accept}}))
			expect.Equal(t, time.Since(began), 5*time.Minute, "Accept: %q: the stream lasts", accept)
		}
	})
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
		expect.That(t, strings.Contains(log, want), "the log has no line %s:\n%s", want, log)
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
			basic("ann", s["a password"]), basic("ann", s["a wrong password"]), basic(s["a misplaced password"], ""), "Basic !" + s["a password"],
			"Bearer " + s["a misplaced password"],
		} {
			for _, path := range []string{"/", "/api/v1/status"} {
				see(request{path: path, header: map[string]string{"Authorization": auth}})
				see(request{path: path, host: "evil.example", header: map[string]string{"Authorization": auth}})
			}
		}
		see(ann().request(request{method: "POST", path: "/plans", form: url.Values{"x": {s["a misplaced password"]}}}))
		for _, text := range []string{
			"MARK4-MARK4", "basic_auth_users: MARK4-MARK4", "basic_auth_users: {ann: MARK4-MARK4}", "basic_auth_users: {ann: [MARK4-MARK4]}", "MARK4-MARK4: x",
			"basic_auth_users: {\"MARK5\\n\": " + bcryptMark + "}", "basic_auth_users: {ann: " + bcryptMark + ", ann: MARK4-MARK4}",
			"basic_auth_users:\n ann:" + bcryptMark, "*MARK4-MARK4", "\"MARK4-MARK4",
			"tls_server_config: {cert: MARK4-MARK4, key: MARK4-MARK4}", "tls_server_config: {cert_file: MARK4-MARK4, key_file: MARK4-MARK4}",
			"tls_server_config: {min_version: MARK4-MARK4}",
			"tls_server_config: {cipher_suites: [MARK4-MARK4]}", "tls_server_config: {client_auth_type: MARK4-MARK4}",
			"http_server_config: {headers: {MARK4-MARK4: MARK4-MARK4}}",
			"ann operator sha256:MARK4-MARK4", "ann:" + bcryptMark,
		} {
			path := r.write("web.yml", text)
			time.Sleep(2 * time.Second)
			see(ann().request(request{}))
			settings := config.Console{Listen: "127.0.0.1:9465", WebConfigFile: path}
			_, err := access.New(access.Options{Settings: settings})
			expect.That(t, err != nil, "%q is accepted", text)
			s.find(t, "an error of New", fmt.Sprintf("%v %v %#v", err, settings, settings))
		}
		s.find(t, "the log", r.log.String())
		expect.That(t, strings.Contains(r.log.String(), "level=ERROR"), "the log does not report the broken files")
		for name, secret := range s {
			settings := config.Console{Listen: "127.0.0.1:9465", WebConfigFile: secret}
			_, err := access.New(access.Options{Settings: settings})
			expect.That(t, err != nil, "%s is a file", name)
			s.find(t, "an error of New", fmt.Sprintf("%v %v %#v", err, settings, settings))
		}
	})
}

// bcryptMark is a hash.
const bcryptMark = "$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki"
