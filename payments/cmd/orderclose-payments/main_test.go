package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments/internal/apitest"
)

var secrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

// write writes a file and returns its name.
func write(t *testing.T, name, content string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// to sends every call to the stand-in of a payment provider.
type to struct{ server *httptest.Server }

func (s to) RoundTrip(r *http.Request) (*http.Response, error) { return apitest.Send(r, s.server) }

// start returns a service on the configuration of docs/payments.md, of a shop with the orders "open", which has the open session cs_open, "at paypal",
// which the customer has approved at PayPal, "at alipay" and "at wechat pay", whose payment pages are open, "paid", whose session cs_paid is paid,
// "starting", whose session has no id yet, and "idle", which has no payment.
func start(t *testing.T, hold func()) *service {
	t.Helper()
	var mu sync.Mutex
	status := map[string]string{"cs_open": "open", "cs_paid": "complete"}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold()
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/v1/oauth2/token":
			fmt.Fprint(w, `{"access_token":"t","expires_in":32400}`)
			return
		case "/v2/checkout/orders/5O190127TN364715T":
			fmt.Fprint(w, `{"intent":"CAPTURE","status":"APPROVED"}`)
			return
		case "/gateway.do":
			node := strings.ReplaceAll(r.PostFormValue("method"), ".", "_") + "_response"
			content := `{"code":"10000","out_trade_no":"ORDER17A","trade_status":"WAIT_BUYER_PAY"}`
			if strings.Contains(node, "close") {
				content = `{"code":"10000","out_trade_no":"ORDER17A"}` // also of a trade that is closed
			}
			fmt.Fprintf(w, `{"%s":%s,"sign":"%s"}`, node, content, apitest.Sign(providerKey, content))
			return
		case "/v3/pay/transactions/out-trade-no/ORDER17A", "/v3/pay/transactions/out-trade-no/ORDER17A/close":
			content := `{"mchid":"1900000109","out_trade_no":"ORDER17A","trade_state":"NOTPAY"}`
			if r.Method == http.MethodPost {
				content = "" // also of an order that is closed
			}
			at := fmt.Sprint(time.Now().Unix())
			w.Header().Set("Wechatpay-Timestamp", at)
			w.Header().Set("Wechatpay-Nonce", "nonce")
			w.Header().Set("Wechatpay-Serial", "PUB_KEY_ID_0119000001092024110100000000000001")
			w.Header().Set("Wechatpay-Signature", apitest.Sign(providerKey, at+"\nnonce\n"+content+"\n"))
			if content == "" {
				w.WriteHeader(http.StatusNoContent)
			}
			fmt.Fprint(w, content)
			return
		}
		id := strings.Split(r.URL.Path, "/")[4]
		if expire := strings.HasSuffix(r.URL.Path, "/expire"); expire && status[id] == "open" {
			status[id] = "expired"
		} else if expire {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"type":"invalid_request_error","message":"Only Checkout Sessions with a status in [\"open\"] can be expired."}}`)
			return
		}
		fmt.Fprintf(w, `{"id":%q,"status":%q,"mode":"payment","payment_status":%q}`, id, status[id], map[string]string{"cs_paid": "paid", "cs_open": "unpaid"}[id])
	}))
	t.Cleanup(provider.Close)
	db := must.Get(sql.Open("sqlite", "file:"+strings.ReplaceAll(t.Name(), "/", "")+"?mode=memory"))(t)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	must.Get(db.Exec(`CREATE TABLE order_payments (order_id TEXT, reference TEXT, started_at TIMESTAMP);
		INSERT INTO order_payments VALUES ('open', 'cs_open', 0), ('paid', 'cs_paid', 0), ('starting', NULL, 0), ('at paypal', '5O190127TN364715T', 0),
			('at alipay', 'alipay:ORDER17A:1767225600', 0), ('at wechat pay', 'wechatpay:ORDER17A:1767225600', 0)`))(t)
	c := must.Get(readConfig(write(t, "payments.yaml", documented(t))))(t)
	return must.Get(newService(c, secrets, db, to{provider}, slog.New(slog.DiscardHandler)))(t)
}

// documented returns the configuration of docs/payments.md, with secrets in files that exist.
func documented(t *testing.T) string {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/payments.md"))(t)
	_, rest, _ := strings.Cut(string(page), "```yaml\n# payments.yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	must.That(t, ok, "docs/payments.md has no payments.yaml")
	return regexp.MustCompile(`/run/secrets/\S+`).ReplaceAllStringFunc(text, func(name string) string {
		switch {
		case strings.HasSuffix(name, "private-key"):
			return write(t, "private", apitest.PrivateText(shopKey))
		case strings.HasSuffix(name, "public-key"):
			return write(t, "public", apitest.PublicText(providerKey))
		}
		return write(t, "key", "rk_test_x\n")
	})
}

// shopKey signs requests, and providerKey the responses of Alipay and WeChat Pay.
var shopKey, providerKey = apitest.NewKey(), apitest.NewKey()

// served returns the address of a service.
func (s *service) served(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(must.Get(s.handler())(t))
	t.Cleanup(server.Close)
	return server.URL
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp := must.Get(http.Get(url))(t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

func TestService_CancelsThePaymentsOfOrders(t *testing.T) {
	at := start(t, func() {}).served(t)
	closer := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: at + "/orderclose/payments", Secrets: secrets}))(t)
	defer closer.Close()
	ids := []string{"open", "paid", "starting", "idle", "at paypal", "at alipay", "at wechat pay"}
	got, err := closer.Ask(t.Context(), ids)
	must.Do(t, err)
	expect.Same(t, got, []payment.Answer{payment.Unpaid, payment.Paid, payment.Unknown, payment.Unpaid, payment.Unpaid, payment.Unpaid, payment.Unpaid}, "Ask")
	for range 2 {
		got, err = closer.Canceler().Cancel(t.Context(), ids)
		must.Do(t, err)
		expect.Same(t, got, []payment.Answer{payment.Cancelled, payment.Paid, payment.Unknown, payment.Cancelled, payment.Cancelled, payment.Cancelled,
			payment.Cancelled}, "Cancel")
	}
	stranger := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: at, Secrets: []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="}}))(t)
	defer stranger.Close()
	expect.Says(t, expect.Err(stranger.Canceler().Cancel(t.Context(), ids)), "401", "with another secret")
	_, text := get(t, at+"/metrics")
	for _, want := range []string{
		`orderclose_payments_answers_total{action="cancel",answer="cancelled"} 10`,
		`orderclose_payments_answers_total{action="ask",answer="paid"} 1`,
		`orderclose_payments_question_duration_seconds_count{action="cancel",result="ok"} 2`,
		`orderclose_payments_call_duration_seconds_count{code="400",method="post",provider="stripe"} 3`,
		`orderclose_payments_call_duration_seconds_count{code="200",method="get",provider="paypal"} 3`,
		`orderclose_payments_call_duration_seconds_count{code="200",method="post",provider="alipay"} 3`,
		`orderclose_payments_call_duration_seconds_count{code="204",method="post",provider="wechatpay"} 2`,
	} {
		expect.That(t, strings.Contains(text, want+"\n"), "the metrics do not have %s", want)
	}
}

func TestService_SaysWhetherItIsReady(t *testing.T) {
	s := start(t, func() {})
	at := s.served(t)
	want := func(when, path string, status int) {
		t.Helper()
		got, body := get(t, at+path)
		expect.That(t, got == status, "%s: %s is %d: %s", when, path, got, body)
	}
	want("at first", "/-/ready", 200)
	s.stopping.Store(true)
	want("while it stops", "/-/ready", 503)
	want("while it stops", "/-/healthy", 200)
	s.stopping.Store(false)
	s.references = func(context.Context, []string) (map[string][]string, error) { return nil, sql.ErrConnDone }
	want("without the database", "/-/ready", 503)
	want("without the database", "/-/healthy", 200)
}

func TestService_AnswersTheLastQuestionsBeforeItStops(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	s := start(t, func() { asked <- true; <-answer })
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	served, got := make(chan error), make(chan error)
	go func() { served <- s.serve(ctx, listener) }()
	closer := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: "http://" + listener.Addr().String(), Secrets: secrets}))(t)
	defer closer.Close()
	go func() {
		answers, err := closer.Canceler().Cancel(t.Context(), []string{"open"})
		if err == nil && answers[0] != payment.Cancelled {
			err = fmt.Errorf("the answer is %s", answers[0])
		}
		got <- err
	}()
	<-asked
	stop()
	select {
	case err := <-served:
		t.Fatalf("it stopped with a question open: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	answer <- true
	expect.NoError(t, <-got)
	expect.NoError(t, <-served)
}

func TestAsk_PrintsTheAnswer(t *testing.T) {
	s := start(t, func() {})
	for order, want := range map[string]string{
		"open":     "order open: 1 payment [\"cs_open\"]: unpaid\n",
		"paid":     "order paid: 1 payment [\"cs_paid\"]: paid\n",
		"idle":     "order idle: no payment: unpaid\n",
		"starting": "order starting: 1 payment without a reference (being opened, or the shop crashed): unknown\n",
	} {
		var out bytes.Buffer
		err := s.printAnswer(t.Context(), order, &out)
		expect.That(t, err == nil && out.String() == want, "%v, %q, want %q", err, out.String(), want)
	}
	expect.Equal(t, describe([]string{"cs_1", "", "cs_2", ""}),
		`2 payments ["cs_1" "cs_2"] and 2 payments without a reference (being opened, or the shop crashed)`, "payments")
}

func TestReadConfig_SaysWhatIsWrong(t *testing.T) {
	key, empty := write(t, "key", "sk_test_x"), write(t, "empty", " \n")
	large := write(t, "large", strings.Repeat("x", 64<<10+1))
	private, public := write(t, "private", apitest.PrivateText(shopKey)), write(t, "public", apitest.PublicText(providerKey))
	good := "query: SELECT a, b FROM c WHERE a IN (?)\nstripe: {authorized: release, key_file: " + key + "}\n"
	c, err := readConfig(write(t, "payments.yaml", good))
	expect.That(t, err == nil && c.Listen == defaultListen && c.Stripe.key == "sk_test_x" && c.Stripe.Authorized == authorizedRelease, "%+v, %v", c, err)
	live, restricted := write(t, "live", "sk_live_x"), write(t, "restricted", "rk_live_x")
	at := func(key, url string) string {
		return "query: x\nstripe: {authorized: release, key_file: " + key + ", url: \"" + url + "\"}\n"
	}
	for _, text := range []string{at(key, "http://127.0.0.1:12111"), at(key, "https://mock.example.com/"), at(live, ""), at(live, stripeURL),
		at(restricted, stripeURL+"/")} {
		_, err := readConfig(write(t, "payments.yaml", text))
		expect.That(t, err == nil, "%s: %v", text, err)
	}
	for name, row := range map[string]struct{ text, says string }{
		"live key elsewhere":  {at(live, "http://127.0.0.1:12111"), "stripe.url: it is a test server, and the key is not of Stripe's test mode"},
		"restricted live key": {at(restricted, "https://api.stripe.com.example.com"), "stripe.url: it is a test server"},
		"live key, like ours": {at(live, "http://api.stripe.com"), "stripe.url: it is a test server"},
		"not a URL":           {at(key, "127.0.0.1:12111"), "stripe.url: \"127.0.0.1:12111\" is not the URL of a test server"},
		"URL with a password": {at(key, "https://a:b@mock.example.com"), "is not the URL of a test server"},
		"unknown key":         {good + "timeout: 3s\n", "payments.yaml: yaml: unmarshal errors:\n  line 3: field timeout not found"},
		"unknown key below":   {"query: x\nstripe:\n  key_file: x\n  secret: x\n", "line 4: field secret not found"},
		"twice":               {good + "query: x\n", "line 3: mapping key \"query\" already defined at line 1"},
		"wrong type":          {"stripe: [x]\n", "line 1: cannot unmarshal !!seq"},
		"empty file":          {"", "query: it is missing"},
		"no provider":         {"query: x\n", "stripe: there is no payment provider"},
		"listen":              {good + "listen: 9470\n", "listen: \"9470\" is not host:port"},
		"authorized":          {"query: x\nstripe: {key_file: " + key + ", authorized: yes}\n", "stripe.authorized: it is \"yes\"; write release if"},
		"no root certificate": {"query: x\nalipay: {app_certificate_file: " + public + "}\n", "alipay.root_certificate_file: it is missing"},
		"public for private": {"query: x\nalipay: {private_key_file: " + public + "}\n",
			"alipay.private_key_file: the file " + public + ": it is a public key; write the private key"},
		"private for public": {"query: x\nwechatpay: {public_key_file: " + private + "}\n",
			"wechatpay.public_key_file: the file " + private + ": it is a private key"},
		"key file not there":  {"query: x\nstripe: {key_file: /nowhere/key}\n", "/nowhere/key"},
		"key file too large":  {"query: x\nstripe: {authorized: release, key_file: " + large + "}\n", large + ": it is larger than 64 KiB"},
		"key file without it": {"query: x\nstripe: {key_file: " + empty + "}\n", "is empty; write the secret into it"},
	} {
		_, err := readConfig(write(t, "payments.yaml", row.text))
		expect.That(t, err != nil && strings.Contains(err.Error(), row.says) && !strings.Contains(err.Error(), "main."), "%s: %v", name, err)
	}
	_, err = readConfig(write(t, "payments.yaml", "stripe: {}\npaypal: {}\nalipay: {root_certificate_file: "+public+"}\nwechatpay: {}\n"))
	for _, missing := range strings.Fields(`query stripe.key_file paypal.client_id paypal.secret_file alipay.app_id alipay.private_key_file
		alipay.alipay_public_key_file alipay.app_certificate_file wechatpay.merchant_id wechatpay.certificate_serial wechatpay.private_key_file
		wechatpay.public_key_id wechatpay.public_key_file`) {
		expect.Says(t, err, missing+": it is missing", "a file without it")
	}
}

// A test server is asked in place of Stripe.
func TestNewService_AsksTheServerOfTheURL(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		fmt.Fprint(w, `{"id":"cs_1","status":"open","mode":"payment","payment_status":"unpaid"}`)
	}))
	defer server.Close()
	c, err := readConfig(write(t, "payments.yaml", "query: SELECT a, b FROM c WHERE a IN (?)\nstripe: {authorized: release, key_file: "+
		write(t, "key", "sk_test_x")+", url: "+server.URL+"/}\n"))
	must.Do(t, err)
	db := must.Get(sql.Open("sqlite", "file:url?mode=memory"))(t)
	defer db.Close()
	db.SetMaxOpenConns(1)
	must.Get(db.Exec("CREATE TABLE c (a TEXT, b TEXT); INSERT INTO c VALUES ('open', 'cs_1')"))(t)
	var log bytes.Buffer
	s := must.Get(newService(c, secrets, db, http.DefaultTransport, slog.New(slog.NewTextHandler(&log, nil))))(t)
	answers, err := s.provider.Ask(t.Context(), []string{"open"})
	expect.That(t, err == nil && answers[0] == payment.Unpaid && asked == "/v1/checkout/sessions/cs_1" && strings.Contains(log.String(), server.URL),
		"%s, %v, asked %s; the log is %s", answers, err, asked, log.String())
}

func TestOpenFiles_NamesEachKeyThatEverybodyMayRead(t *testing.T) {
	c := must.Get(readConfig(write(t, "payments.yaml", documented(t))))(t)
	private := map[string]*string{"stripe.key_file": &c.Stripe.KeyFile, "paypal.secret_file": &c.PayPal.SecretFile,
		"alipay.private_key_file": &c.Alipay.PrivateKeyFile, "wechatpay.private_key_file": &c.WeChatPay.PrivateKeyFile}
	secretFile := func(mode os.FileMode) string {
		name := write(t, "secret", "x")
		must.Do(t, os.Chmod(name, mode))
		return name
	}
	for _, mode := range []os.FileMode{0o640, 0o644} {
		for _, file := range private {
			*file = secretFile(mode)
		}
		found := openFiles(c, func(name string) (string, bool) { return secretFile(mode), strings.HasSuffix(name, "_FILE") }, []string{"ORDERCLOSE_DB_DSN"})
		expect.Equal(t, len(found), map[os.FileMode]int{0o644: len(private) + 1}[mode], "warnings at mode %o: %v", mode, found)
	}
}

func TestRun_SaysWhatIsMissing(t *testing.T) {
	file := write(t, "payments.yaml", "query: SELECT 1\nstripe: {authorized: release, key_file: "+write(t, "key", "sk_test_x")+"}\n")
	variables := map[string]string{"ORDERCLOSE_DB_DSN": "user:password@tcp(127.0.0.1:1)/shop", "ORDERCLOSE_PAYMENT_SECRET": secrets[0]}
	for name, row := range map[string]struct {
		args                     []string
		unset, dsn, says, hidden string
	}{
		"no file":     {args: []string{"--config", "/nowhere.yaml"}, says: "/nowhere.yaml"},
		"argument":    {args: []string{"--config", file, "ask"}, says: `unexpected argument "ask"`},
		"no database": {args: []string{"--config", file}, unset: "ORDERCLOSE_DB_DSN", says: "ORDERCLOSE_DB_DSN is not set"},
		"no secret":   {args: []string{"--config", file}, unset: "ORDERCLOSE_PAYMENT_SECRET", says: "ORDERCLOSE_PAYMENT_SECRET is not set"},
		"not a DSN":   {args: []string{"--config", file}, dsn: "user:hunter2@", says: "ORDERCLOSE_DB_DSN: the database's DSN is invalid", hidden: "hunter2"},
		"not a query": {args: []string{"--config", file}, says: "query: the query must have one (?)"},
	} {
		lookup := func(variable string) (string, bool) {
			if variable == row.unset {
				return "", false
			}
			if variable == "ORDERCLOSE_DB_DSN" && row.dsn != "" {
				return row.dsn, true
			}
			value, ok := variables[variable]
			return value, ok
		}
		err := run(t.Context(), row.args, lookup, io.Discard, io.Discard)
		expect.That(t, err != nil && strings.Contains(err.Error(), row.says) && (row.hidden == "" || !strings.Contains(err.Error(), row.hidden)),
			"%s: %v", name, err)
	}
}

// The rules are those of the closer, which reads the same variable.
func TestOpenDatabase_RefusesADSNThatIsNotSafe(t *testing.T) {
	for parameters, refused := range map[string]bool{
		"": false, "?tls=true": false, "?tls=skip-verify": true, "?tls=preferred": true, "?tls=true&allowFallbackToPlaintext=true": true,
		"?charset=gbk": true, "?character_set_client=gbk": true, "?allowCleartextPasswords=true": true, "?allowAllFiles=true&multiStatements=true": false,
	} {
		db, err := openDatabase(environ.Servers{DSN: "shop:secret@tcp(127.0.0.1:3306)/shop" + parameters})
		if err == nil {
			_ = db.Close()
		}
		expect.That(t, (err != nil) == refused && (err == nil || !strings.Contains(err.Error(), "secret")), "%q: error %v", parameters, err)
	}
}

// A limit of rows that the server, or a careless DSN, sets would make paid orders look unpaid.
func TestDatabaseConfig_AnswersAreNotCut(t *testing.T) {
	m, err := databaseConfig(environ.Servers{DSN: "shop@tcp(127.0.0.1:3306)/shop?sql_select_limit=5"})
	expect.That(t, err == nil && m.Params["sql_select_limit"] == "" && strings.Contains(m.FormatDSN(), "sql_select_limit+%3D+18446744073709551615"),
		"%v, %v", m, err)
}
