package access_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		status := raw(t, server, row.request)
		expect.That(t, status == row.status, "%q answers %d, want %d", row.request, status, row.status)
	}
}

// A form that is announced larger than the limit is refused before it has arrived.
func TestServer_RefusesAHugeForm(t *testing.T) {
	server := serve(t, newRig(t, anonymous))
	head := "POST /order HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	for _, text := range []string{
		head + "Content-Length: 1000000000\r\n\r\nid=" + strings.Repeat("x", access.MaxBody),
		head + "Transfer-Encoding: chunked\r\n\r\n100001\r\n" + strings.Repeat("x", access.MaxBody+1) + "\r\n",
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

// A body must arrive within 30 s. A handler may take longer.
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

// A request does not outlive its user for long.
func TestGate_ARequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withProxy)
		u := ann()
		r.handler = r.gate.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
		began := time.Now()
		r.do(u.request(request{path: "/live"}))
		expect.Equal(t, time.Since(began), 5*time.Minute, "a request lasts")
	})
}
