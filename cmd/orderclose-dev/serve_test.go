package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// serveTopics has one delay that the test waits for, and one that outlasts a restart.
const serveTopics = `buckets: [1s, 10s]
partitions: 2
delays:
  default: 1h
  categories: {soon: 1s}
compensator:
  period: 2s
`

// running is a serve command in this process.
type running struct {
	t      *testing.T
	at     addresses
	cancel context.CancelFunc
	code   chan int
	stderr *bytes.Buffer
}

func startServe(t *testing.T, args ...string) *running { return startServeIn(t, nil, args...) }

// startServeIn starts serve with these environment variables.
func startServeIn(t *testing.T, environ map[string]string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, code: make(chan int, 1), stderr: &bytes.Buffer{}}
	reading, writing := io.Pipe()
	go func() {
		code := run(ctx, cli.Env{
			Stdin: strings.NewReader(""), Stdout: writing, Stderr: r.stderr,
			LookupEnv: func(name string) (string, bool) { v, ok := environ[name]; return v, ok },
		}, append([]string{"serve", "--shop-port", "0", "--console-port", "0", "--kafka-port", "0", "--redis-port", "0", "-o", "json"}, args...))
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
	code := <-r.code
	expect.That(r.t, code == 0, "exit %d\n%s", code, r.stderr)
}

// call sends a request to the shop, checks the status code, and decodes the answer.
func (r *running) call(code int, method, path, body string, into any) {
	r.t.Helper()
	req := must.Get(http.NewRequestWithContext(r.t.Context(), method, r.at.Shop+path, strings.NewReader(body)))(r.t)
	res := must.Get(http.DefaultClient.Do(req))(r.t)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	must.That(r.t, err == nil && res.StatusCode == code, "%s %s: %d %s, %v; want %d", method, path, res.StatusCode, answer, err, code)
	if err := json.Unmarshal(answer, into); err != nil {
		r.t.Fatalf("%s %s: %s: %v", method, path, answer, err)
	}
}

// await polls an order until it is closed.
func (r *running) await(id string) { r.t.Helper(); r.awaitStatus(id, checkout.Closed) }

// awaitStatus polls an order until it has the status.
func (r *running) awaitStatus(id string, want checkout.State) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		var o checkout.Order
		r.call(200, "GET", "/orders/"+id, "", &o)
		if o.Status == want {
			return
		}
		must.That(r.t, !time.Now().After(end), "not %s: %+v\n%s", want, o, r.stderr)
		<-time.After(50 * time.Millisecond)
	}
}

func TestServe_KeepsItsDataAndRefusesASecondProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte(serveTopics), 0o600))
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
	if _, stderr, code := runDev(t, "serve", "--dir", dir, "--shop-port", "0", "--kafka-port", "0", "--redis-port", "0"); code != 5 ||
		!strings.Contains(stderr, "--dir") {
		t.Errorf("a second serve in the same folder: exit %d, %s", code, stderr)
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
	expect.That(t, !strings.Contains(r.stderr.String(), "level=ERROR"), "errors in the log:\n%s", r.stderr)
}

func TestServe_NeedsNoConfiguration(t *testing.T) {
	r := startServe(t, "--dir", t.TempDir())
	answer := must.Get(http.Get(r.at.Shop + "/metrics"))(t)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	for _, metric := range []string{"orderclose_config_last_reload_successful 1", "go_goroutines", "process_open_fds"} {
		expect.That(t, err == nil && strings.Contains(string(body), "\n"+metric), "%v; /metrics has no %s", err, metric)
	}
	r.stop()
}

func TestServe_RefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--kafka-port", "-1"}, {"--shop-port", "65536"}, {"-o", "xml"}, {"--config", "none.yaml"}} {
		out, stderr, code := runDev(t, append([]string{"serve", "--dir", t.TempDir()}, args...)...)
		expect.That(t, code == 2 && out == "" && stderr != "", "%v: exit %d, %q, %q", args, code, out, stderr)
	}
}

const serveSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// writeTopics writes the test's topics.yaml with this closer section.
func writeTopics(t *testing.T, closer string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte(serveTopics+"closer:\n  "+closer+"\n"), 0o600))
	return file
}

// The provider's answer decides, whether the pipeline closes an order or a request does.
func TestServe_AsksThePaymentProvider(t *testing.T) {
	handler := must.Get(payment.Handler([]string{serveSecret}, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
		answers := make([]payment.Answer, len(ids))
		for i, id := range ids {
			answers[i] = map[string]payment.Answer{"paid": payment.Paid, "unpaid": payment.Unpaid}[id]
		}
		return answers, nil
	})))(t)
	provider := httptest.NewServer(handler)
	defer provider.Close()
	file := writeTopics(t, "payment: {url: "+provider.URL+"}")
	r := startServeIn(t, map[string]string{environ.EnvPaymentSecret: serveSecret, environ.EnvRedis: "none of serve's"}, "--dir", t.TempDir(), "--config", file)
	var o checkout.Order
	for _, id := range []string{"paid", "unpaid", "unknown"} {
		r.call(201, "POST", "/orders", fmt.Sprintf(`{"id":%q,"customer":"ann","category":"soon","items":[{"sku":"ink","quantity":1}]}`, id), &o)
	}
	r.awaitStatus("unpaid", checkout.Closed)
	r.awaitStatus("paid", checkout.Paid)
	<-time.After(time.Second) // the order is past due, and the next request makes the shop try to close it first
	var refused map[string]any
	r.call(409, "POST", "/orders/unknown/payments", "", &refused)
	if r.call(200, "GET", "/orders/unknown", "", &o); o.Status == checkout.Closed {
		t.Errorf("the provider does not know whether it was paid, and it is closed: %+v", o)
	}
	r.stop()
}

// The shop asks the service to close an order and does not close it itself.
func TestServe_ClosesThroughAService(t *testing.T) {
	asked := make(chan string, 100)
	handler := must.Get(httpclose.Handler([]string{serveSecret}, func(_ context.Context, _ orderclose.Path,
		reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		out := make([]orderclose.Outcome, len(reqs))
		for i, q := range reqs {
			out[i] = orderclose.Outcome{OrderID: q.OrderID, Verdict: orderclose.AlreadyPaid}
			select {
			case asked <- q.OrderID:
			default:
			}
		}
		return out, nil
	}))(t)
	service := httptest.NewServer(handler)
	defer service.Close()
	file := writeTopics(t, "{http: {url: "+service.URL+"}}")
	r := startServeIn(t, map[string]string{environ.EnvHTTPSecret: serveSecret}, "--dir", t.TempDir(), "--config", file)
	var o checkout.Order
	r.call(201, "POST", "/orders", `{"id":"soon","customer":"ann","category":"soon","items":[{"sku":"ink","quantity":1}]}`, &o)
	select {
	case id := <-asked:
		expect.That(t, id == "soon", "asked to close %q", id)
	case <-time.After(30 * time.Second):
		t.Error("the service was not asked to close")
	}
	if r.call(200, "GET", "/orders/soon", "", &o); o.Status == checkout.Closed {
		t.Errorf("the shop has closed the order itself: %+v", o)
	}
	r.stop()
}

func TestServe_RequiresTheSecretOfAService(t *testing.T) {
	for variable, closer := range map[string]string{
		environ.EnvPaymentSecret: "payment: {url: http://127.0.0.1:1/}", environ.EnvHTTPSecret: "{http: {url: http://127.0.0.1:1/}}",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		out, stderr, code := runDev(t, "serve", "--dir", dir, "--config", writeTopics(t, closer))
		if _, err := os.Stat(dir); code != 2 || out != "" || !strings.Contains(stderr, variable+" is not set") || !os.IsNotExist(err) {
			t.Errorf("%s: exit %d, %q, %q; the folder: %v", closer, code, out, stderr, err)
		}
	}
}
