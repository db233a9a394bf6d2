package httpcall

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Services in other languages are written by docs/http.md.
func TestSign_MatchesTheDocumentation(t *testing.T) {
	data := must.Get(os.ReadFile("../../docs/http.md"))(t)
	doc := string(data)
	_, rest, _ := strings.Cut(doc, "```json request\n")
	body, _, ok := strings.Cut(rest, "\n```")
	must.That(t, ok && len(body) == 213, "the example request has %d bytes", len(body))
	rows := regexp.MustCompile("\\| `(orderclose-test-secret-\\w+)` \\| `(v1=[0-9a-f]{64})` \\|").FindAllStringSubmatch(doc, -1)
	must.That(t, len(rows) == 6, "%d test vectors", len(rows))
	rows = rows[:2] // the others, of questions to the payment provider, are those of TestHTTP_MatchesTheDocumentation
	at := time.Unix(1772366700, 0)
	for _, row := range rows {
		timestamp, signature := Sign([]string{row[1]}, at, []byte(body))
		expect.That(t, timestamp == "1772366700" && signature == row[2], "by %s: %s %s, documented is %s", row[1], timestamp, signature, row[2])
	}
	expect.That(t, strings.Contains(doc, HeaderTimestamp+": 1772366700\n"+HeaderSignature+": "+rows[0][2]+"\n"), "the headers of the example differ")
}

func TestVerify(t *testing.T) {
	const one, two, other = "secret-number-one", "secret-number-two", "secret-of-a-stranger"
	now, body := time.Unix(1772366700, 999), []byte(`{"a":1}`)
	for _, row := range []struct {
		name    string
		by      []string
		at      time.Time
		body    string
		change  func(http.Header)
		secrets []string
		want    error
	}{
		{name: "signed", by: []string{one}, secrets: []string{one}},
		{name: "signed by two secrets, one of them known", by: []string{two, one}, secrets: []string{one}},
		{name: "signed by one of two known secrets", by: []string{two}, secrets: []string{one, two}},
		{name: "5 minutes old", by: []string{one}, secrets: []string{one}, at: now.Add(-5*time.Minute + time.Second)},
		{name: "older", by: []string{one}, secrets: []string{one}, at: now.Add(-5*time.Minute - time.Second), want: ErrBadTimestamp},
		{name: "from the future", by: []string{one}, secrets: []string{one}, at: now.Add(5*time.Minute + time.Second), want: ErrBadTimestamp},
		{name: "signed with an unknown secret", by: []string{other}, secrets: []string{one, two}, want: ErrBadSignature},
		{name: "with another body", by: []string{one}, secrets: []string{one}, body: `{"a":2}`, want: ErrBadSignature},
		{name: "with another time", by: []string{one}, secrets: []string{one}, change: func(h http.Header) {
			h.Set(HeaderTimestamp, "1772366701")
		}, want: ErrBadSignature},
		{name: "without a signature", by: []string{one}, secrets: []string{one}, change: func(h http.Header) { h.Del(HeaderSignature) }, want: ErrNoSignature},
		{name: "without a time", by: []string{one}, secrets: []string{one}, change: func(h http.Header) { h.Del(HeaderTimestamp) }, want: ErrNoSignature},
		{name: "with an empty signature", by: []string{one}, secrets: []string{one}, change: func(h http.Header) {
			h.Set(HeaderSignature, "v1=")
		}, want: ErrBadSignature},
		{name: "in another scheme", by: []string{one}, secrets: []string{one}, change: func(h http.Header) {
			h.Set(HeaderSignature, strings.Replace(h.Get(HeaderSignature), "v1", "v0", 1))
		}, want: ErrBadSignature},
		{name: "with spaces and an unknown scheme", by: []string{one}, secrets: []string{one}, change: func(h http.Header) {
			h.Set(HeaderSignature, "v2=xyz, "+h.Get(HeaderSignature))
		}},
		{name: "without secrets to verify", by: []string{one}, want: ErrBadSignature},
	} {
		if row.at.IsZero() {
			row.at = now
		}
		if row.body == "" {
			row.body = string(body)
		}
		h := http.Header{}
		timestamp, signature := Sign(row.by, row.at, body)
		h.Set(HeaderTimestamp, timestamp)
		h.Set(HeaderSignature, signature)
		if row.change != nil {
			row.change(h)
		}
		err := Verify(row.secrets, h, []byte(row.body), now)
		expect.That(t, errors.Is(err, row.want), "a request %s: %v, want %v", row.name, err, row.want)
	}
}

// An attacker could otherwise send a quarter of a million signatures with 4 MB, and
// have a terabyte hashed.
func TestVerify_HashesTheBodyOnceForEachSecret(t *testing.T) {
	hashing := func(signatures int) float64 {
		h := http.Header{}
		h.Set(HeaderTimestamp, "1772366700")
		h.Set(HeaderSignature, strings.Repeat("v1=,", signatures))
		return testing.AllocsPerRun(10, func() { _ = Verify([]string{"secret-number-one"}, h, []byte("{}"), time.Now()) })
	}
	if one, many := hashing(1), hashing(1000); many > one {
		t.Errorf("%v allocations for one signature, %v for a thousand", one, many)
	}
}

func TestReceive_ReportsInvalidRequests(t *testing.T) {
	const secret = "secret-number-one"
	send := func(method, body string, sign bool) int {
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		if sign {
			timestamp, signature := Sign([]string{secret}, time.Now(), []byte(body))
			r.Header.Set(HeaderTimestamp, timestamp)
			r.Header.Set(HeaderSignature, signature)
		}
		w := httptest.NewRecorder()
		var in struct{}
		if Receive(w, r, []string{secret}, time.Now(), &in) {
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
	good := []string{"secret-number-one"}
	for _, o := range []ClientOptions{
		{URL: "", Secrets: good}, {URL: "shop/close", Secrets: good}, {URL: "ftp://shop/", Secrets: good}, {URL: "http://", Secrets: good},
		{URL: "http://u:p@shop/", Secrets: good}, {URL: "http://shop/#x", Secrets: good}, {URL: "http://shop/"}, {URL: "http://shop/", Secrets: []string{"short"}},
	} {
		_, err := NewClient(o)
		expect.That(t, err != nil && !strings.Contains(err.Error(), "short"), "%+v: %v", o, err)
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
			Receive(w, r, []string{"a secret that is long enough for it"}, time.Now(), new(int))
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
