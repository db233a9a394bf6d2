package consoletest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// letter is a dead letter. The zero value of each field but Order has a default that fits it.
type letter struct {
	Order, Value                 string
	Cause, Detail, Stage, Source string // Source is the topic of the record
}

// record returns the dead letter with its defaults as a record, as docs/wire.md describes it.
func (l letter) record(now time.Time) kafka.Record {
	due := now.Add(-time.Minute)
	value := cmp.Or(l.Value, fmt.Sprintf(`{"order_id":%s,"category":"later","created_at":%q,"due_at":%q}`,
		literal(l.Order), due.Add(-time.Hour).UTC().Format(wireTime), due.UTC().Format(wireTime)))
	r := kafka.Record{Key: protocol.NewBytes([]byte(l.Order)), Value: protocol.NewBytes([]byte(value)), Time: now}
	for _, h := range [][2]string{
		{"due", strconv.FormatInt(due.UnixMilli(), 10)}, {"v", "1"}, {"cause", cmp.Or(l.Cause, "failed")},
		{"detail", cmp.Or(l.Detail, "the database refuses the order")}, {"stage", cmp.Or(l.Stage, "closer")},
		{"source-topic", cmp.Or(l.Source, "order-close")}, {"source-partition", "0"}, {"source-offset", "17"},
	} {
		r.Headers = append(r.Headers, protocol.Header{Key: h[0], Value: []byte(h[1])})
	}
	return r
}

const wireTime = "2006-01-02T15:04:05.000Z"

// serveTopics has a delay that tests wait for, and a bucket for each other delay, so that a check can watch a bucket that no other check uses.
const serveTopics = `partitions: 2
buckets: [2s, 1m, 1h, 6h, 12h]
delays:
  default: 1h
  categories: {soon: 2s, later: 6h, tomorrow: 12h}
compensator:
  period: 10s
`

// serve is the command serve of orderclose-dev: a shop, the whole pipeline, and the console behind a proxy.
type serve struct {
	at struct{ Shop, Kafka, Console string } // Console is that of the proxy
}

// passwords has those of the users of the proxy.
var passwords = map[string]string{"operator": "operator-password-of-the-tests"}

// buildServe builds orderclose-dev, once.
var buildServe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "orderclose-consoletest.")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() error { return os.RemoveAll(dir) })
	program := filepath.Join(dir, "orderclose-dev")
	build := exec.Command("go", "build", "-o", program, "./cmd/orderclose-dev")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// startServe starts serve on free ports of the loopback, with its data in a temporary folder, and waits until it is ready. topics is its topics.yaml;
// empty: its default. start starts the proxy. env has further variables. It stops at the end of the test.
func startServe(t *testing.T, topics string, start func(http.Handler) *httptest.Server, env ...string) *serve {
	t.Helper()
	program := must.Get(buildServe())(t)
	dir := t.TempDir()
	args := []string{"serve", "--dir", filepath.Join(dir, "data"), "--console-port", "0", "--shop-port", "0", "--kafka-port", "0",
		"--redis-port", "0", "-o", "json"}
	if topics != "" {
		file := filepath.Join(dir, "topics.yaml")
		must.Do(t, os.WriteFile(file, []byte(topics), 0o600))
		args = append(args, "--config", file)
	}
	var stderr bytes.Buffer
	first := make(chan []byte, 1) // the line of stdout
	p := &process.Process{Name: "serve", Command: func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ORDERCLOSE_") }),
			"ORDERCLOSE_CONSOLE_OPERATORS=operator", "ORDERCLOSE_CONSOLE_PROXIES=127.0.0.1", "ORDERCLOSE_CONSOLE_USER_HEADER=X-Forwarded-User")
		cmd.Env = append(cmd.Env, env...)
		cmd.Stderr = &stderr
		return cmd
	}, Output: func(out io.Reader) {
		line, _ := bufio.NewReader(out).ReadBytes('\n')
		first <- line
		_, _ = io.Copy(io.Discard, out)
	}}
	must.Do(t, p.Start())
	t.Cleanup(func() {
		expect.NoError(t, p.End(syscall.SIGTERM, stepTimeout))
		if t.Failed() {
			t.Logf("log of serve:\n%s", stderr.Bytes())
		}
	})
	s := &serve{}
	if line := <-first; json.Unmarshal(line, &s.at) != nil {
		t.Fatalf("serve prints %q", line)
	}
	console := must.Get(url.Parse(strings.TrimSuffix(s.at.Console, "/")))(t)
	front := start(signIn(console.Host))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	s.at.Console = front.URL + console.Path
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	must.Do(t, process.Await(ctx, func(context.Context) error {
		if status, body := s.call(t, "GET", s.at.Shop+"/-/ready", ""); status != http.StatusOK {
			return fmt.Errorf("not ready: %d %s", status, body)
		}
		return nil
	}, p))
	return s
}

// signIn returns a proxy that asks for a password, and names the user to the console.
func signIn(console string) http.Handler {
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", console
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if c, err := r.Cookie("proxy"); err == nil { // of the requests of a worker
			user, password, _ = strings.Cut(c.Value, ".")
		}
		if want, known := passwords[user]; !known || password != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="proxy"`)
			http.Error(w, "sign in", http.StatusUnauthorized)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "proxy", Value: user + "." + password, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		r.Header.Set("X-Forwarded-User", user)
		forward.ServeHTTP(w, r)
	})
}

// anyCertificate connects to proxies whose certificate httptest has made.
var anyCertificate = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: stepTimeout}

func (s *serve) url() string { return s.at.Console }

// call sends a request, and returns the status and the body of the answer.
func (s *serve) call(t testing.TB, method, url, body string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	r := must.Get(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(t)
	answer := must.Get(anyCertificate.Do(r))(t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, text
}

// create creates an unpaid order in the shop. It is due after the delay of its category.
func (s *serve) create(t testing.TB, id, category string) {
	t.Helper()
	status, answer := s.call(t, "POST", s.at.Shop+"/orders",
		fmt.Sprintf(`{"id":%s,"customer":"ann","category":%s,"items":[{"sku":"ink","quantity":1}]}`, literal(id), literal(category)))
	must.That(t, status == http.StatusCreated, "create order %q: %d %s", id, status, answer)
}

// awaitClose waits until the order is closed.
func (s *serve) awaitClose(t testing.TB, id string) {
	t.Helper()
	for end := time.Now().Add(stepTimeout); ; time.Sleep(50 * time.Millisecond) {
		status, answer := s.call(t, "GET", s.at.Shop+"/orders/"+url.PathEscape(id), "")
		if bytes.Contains(answer, []byte(`"status":"closed"`)) {
			return
		}
		must.That(t, !time.Now().After(end), "order %q is not closed: %d %s", id, status, answer)
	}
}

const deadLetterTopic = "order-close-dead-letter"

// giveUp appends a dead letter, and returns its place: 0/17.
func (s *serve) giveUp(t testing.TB, l letter) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	const partition = 0 // the topic has no other
	client := &kafka.Client{Addr: kafka.TCP(s.at.Kafka)}
	answer, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: deadLetterTopic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(l.record(time.Now())),
	})
	if err == nil {
		err = answer.Error
	}
	must.Do(t, err)
	return fmt.Sprintf("%d/%d", partition, answer.BaseOffset)
}
