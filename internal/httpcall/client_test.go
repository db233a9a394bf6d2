package httpcall

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var testKeys, _ = signature.Parse([]string{secret})

func TestReceive_ReportsInvalidRequests(t *testing.T) {
	send := func(method, body string, sign bool) int {
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		if sign {
			testKeys.Sign(r.Header, "msg_1", time.Now(), []byte(body))
		}
		w := httptest.NewRecorder()
		var in struct{}
		if Receive(w, r, testKeys, &in) {
			Reply(w, in, nil)
		}
		return w.Code
	}
	for _, row := range []struct {
		method, body string
		sign         bool
		want         int
	}{
		{"POST", "{}", true, 200}, {"GET", "{}", true, 405}, {"POST", "{}", false, 401}, {"POST", "{", true, 400},
		{"POST", strings.Repeat(" ", MaxRequest+1), true, 413},
	} {
		expect.Equal(t, send(row.method, row.body, row.sign), row.want, "%s %.10q signed %v", row.method, row.body, row.sign)
	}
}

func TestStatusError_Fault(t *testing.T) {
	for status, want := range map[int]bool{
		301: true, 307: true, 401: true, 403: true, 404: true, 405: true, 408: true, 429: true, 501: true, 502: true, 503: true, 504: true, 599: true,
		400: false, 409: false, 413: false, 418: false, 422: false, 500: false,
	} {
		expect.Equal(t, errors.Is(&StatusError{Status: status}, orderclose.ErrUnavailable), want, "%d: the service is at fault", status)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999": 0, "999999": 24 * time.Hour,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second, "Sun, 01 Mar 2026 11:00:30 GMT": 0,
	} {
		expect.Equal(t, RetryAfter(value, now), want, "%q", value)
	}
}

func TestNewClient_RejectsInvalidOptions(t *testing.T) {
	for url, secrets := range map[string][]string{"shop/close": {secret}, "http://shop/": {"short"}, "https://shop/": nil} {
		_, err := NewClient(url, secrets, nil)
		expect.That(t, err != nil && !strings.Contains(err.Error(), "short"), "%s: %v", url, err)
	}
}

func TestRefuseBrowsers_OnlyIfTheyWouldChangeSomething(t *testing.T) {
	h := RefuseBrowsers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		method, header, value string
		want                  int
	}{
		{"POST", "", "", 200},
		{"POST", "Origin", "https://evil.example", 403},
		{"POST", "Origin", "null", 403},
		{"POST", "Sec-Fetch-Site", "same-origin", 403}, // a name of the page resolves to the loopback
		{"GET", "Origin", "https://evil.example", 200}, // the browser does not show the answer to the page
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.That(t, w.Code == c.want, "%+v: %d", c, w.Code)
	}
}

// askedLater is an error that says for how long no requests are wanted.
type askedLater time.Duration

func (askedLater) Error() string               { return "later" }
func (a askedLater) RetryAfter() time.Duration { return time.Duration(a) }
func (askedLater) Unwrap() error               { return orderclose.ErrUnavailable }

func TestReply_PassesOnHowLongToWait(t *testing.T) {
	for _, row := range []struct {
		err    error
		status int
		after  string
	}{
		{nil, 200, ""},
		{errors.New("x"), 500, ""},
		{orderclose.ErrUnavailable, 503, ""},
		{askedLater(0), 503, ""},
		{askedLater(time.Millisecond), 503, "1"},
		{fmt.Errorf("x: %w", askedLater(7*time.Second)), 503, "7"},
	} {
		w := httptest.NewRecorder()
		Reply(w, "answer", row.err)
		got := w.Header().Get("Retry-After")
		expect.That(t, w.Code == row.status && got == row.after, "%v: status %d, Retry-After %q; want %d, %q", row.err, w.Code, got, row.status, row.after)
	}
}

// The connection is closed even if the server has no timeouts.
func TestReceive_ASlowBodyDoesNotOccupyTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := testkit.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Receive(w, r, nil, new(int))
		})}
		served := make(chan struct{})
		go func() { defer close(served); server.Serve(listener) }()
		client := must.Get(listener.Transport().DialContext(t.Context(), "tcp", "x"))(t)
		must.Get(io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nslow"))(t)
		began := time.Now()
		client.SetReadDeadline(began.Add(time.Minute))
		_, err := io.Copy(io.Discard, client)
		expect.That(t, err == nil && time.Since(began) <= readTimeout+time.Second, "the connection ends after %v with %v", time.Since(began), err)
		client.Close()
		server.Close()
		<-served
	})
}
