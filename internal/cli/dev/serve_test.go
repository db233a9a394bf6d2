package dev

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orderclose/examples/checkout"
	"orderclose/internal/cli"
)

// delays of the test's shop: one to wait for, one that outlives a stop.
const serveTopics = `buckets: [1s, 10s]
partitions: 2
delays:
  default: 1h
  categories: {soon: 1s}
compensator:
  period: 2s
  grace: 1s
  lock: {expiry: 2s, extend: 1s}
`

// running is a serve in this process.
type running struct {
	t      *testing.T
	at     addresses
	cancel context.CancelFunc
	code   chan int
	stderr *bytes.Buffer
}

func startServe(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, code: make(chan int, 1), stderr: &bytes.Buffer{}}
	reading, writing := io.Pipe()
	go func() {
		code := Main(ctx, cli.Env{
			Stdin: strings.NewReader(""), Stdout: writing, Stderr: r.stderr,
			LookupEnv: func(string) (string, bool) { return "", false },
		}, append([]string{"serve", "--shop-port", "0", "--kafka-port", "0", "--redis-port", "0", "-o", "json"}, args...))
		_ = writing.Close()
		r.code <- code
	}()
	t.Cleanup(cancel)
	line, err := bufio.NewReader(reading).ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &r.at)
	}
	if err != nil {
		t.Fatalf("%v in %q; exit %d\n%s", err, line, <-r.code, r.stderr)
	}
	return r
}

func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if code := <-r.code; code != 0 {
		r.t.Errorf("exit %d\n%s", code, r.stderr)
	}
}

// call asks the shop and reads its answer, which must have that code.
func (r *running) call(code int, method, path, body string, into any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.at.Shop+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code {
		r.t.Fatalf("%s %s: %d %s, %v; want %d", method, path, res.StatusCode, answer, err, code)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		r.t.Fatalf("%s %s: %s: %v", method, path, answer, err)
	}
}

// await asks for an order until it is closed.
func (r *running) await(id string) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		var o checkout.Order
		r.call(200, "GET", "/orders/"+id, "", &o)
		if o.Status == checkout.Closed {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not closed: %+v\n%s", o, r.stderr)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestServe_KeepsWhatItHasAndRefusesASecondOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(file, []byte(serveTopics), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startServe(t, "--dir", dir, "--config", file)
	var o checkout.Order
	for id, category := range map[string]string{"soon": "soon", "paid": "soon", "later": "later"} {
		r.call(201, "POST", "/orders", fmt.Sprintf(`{"id":%q,"customer":"ann","category":%q,"items":[{"sku":"ink","quantity":1}]}`, id, category), &o)
	}
	var p checkout.StartedPayment
	r.call(201, "POST", "/orders/paid/payments", "", &p)
	var result checkout.PaymentResult
	r.call(200, "POST", "/payments/callback", fmt.Sprintf(`{"payment_id":%q}`, p.PaymentID), &result)
	r.await("soon")
	if _, stderr, code := runDev(t, "serve", "--dir", dir, "--shop-port", "0", "--kafka-port", "0", "--redis-port", "0"); code != 5 || !strings.Contains(stderr, "--dir") {
		t.Errorf("a second one in the same folder: exit %d, %s", code, stderr)
	}
	r.call(201, "POST", "/orders", `{"id":"meanwhile","customer":"ann","category":"soon","items":[{"sku":"ink","quantity":1}]}`, &o)
	r.stop()

	r = startServe(t, "--dir", dir, "--config", file)
	r.await("meanwhile")
	for id, want := range map[string]checkout.State{"soon": checkout.Closed, "paid": checkout.Paid, "later": checkout.Unpaid} {
		if r.call(200, "GET", "/orders/"+id, "", &o); o.Status != want {
			t.Errorf("%s is %s after the restart, want %s", id, o.Status, want)
		}
	}
	r.stop()
	if strings.Contains(r.stderr.String(), "level=ERROR") {
		t.Errorf("errors in the log:\n%s", r.stderr)
	}
}

func TestServe_RefusesWhatItCannotDo(t *testing.T) {
	for _, args := range [][]string{{"--kafka-port", "-1"}, {"--shop-port", "65536"}, {"-o", "xml"}, {"--config", "none.yaml"}} {
		if out, stderr, code := runDev(t, append([]string{"serve", "--dir", t.TempDir()}, args...)...); code != 2 || out != "" || stderr == "" {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, stderr)
		}
	}
}
