package alipay_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments/alipay"
	"github.com/orderclose/orderclose/payments/internal/apitest"
)

type object = map[string]any

const (
	appID  = "2021000000000000"
	number = "ORDER17A"
)

var (
	shopKey   = apitest.NewKey()
	alipayKey = apitest.NewKey()
	otherKey  = apitest.NewKey()

	open    = fmt.Sprintf("alipay:%s:%d", number, time.Now().Add(time.Hour).Unix())  // the page may be opened
	expired = fmt.Sprintf("alipay:%s:%d", number, time.Now().Add(-time.Hour).Unix()) // it may not
)

// standIn behaves as Alipay's public API does: the gateway with signatures, and the methods query and close.
type standIn struct {
	server *httptest.Server
	key    *rsa.PrivateKey // signs responses
	// before is called before each request is answered; if it returns true, it has answered.
	before func(w http.ResponseWriter, method string) bool

	mu     sync.Mutex
	hosts  []string
	calls  []string          // methods
	status map[string]string // of trades by out_trade_no
	extra  object            // more fields of a trade

	appSerial, rootSerial string // of an app in certificate mode
}

func start(t *testing.T) *standIn {
	s := &standIn{key: alipayKey, status: map[string]string{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// RoundTrip sends every call to the stand-in.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.hosts = append(s.hosts, r.URL.Host)
	s.mu.Unlock()
	return apitest.Send(r, s.server)
}

// answer writes a node with its signature, and business fields after code and msg.
func (s *standIn) answer(w http.ResponseWriter, node, code string, fields object) {
	content := object{"code": code, "msg": map[string]string{"10000": "Success", "40004": "Business Failed", "40005": "Call Limited"}[code]}
	for key, value := range fields {
		content[key] = value
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	s.write(w, node, string(text), apitest.Sign(s.key, string(text)))
}

func (s *standIn) write(w http.ResponseWriter, node, content, signature string) {
	w.Header().Set("Content-Type", "text/html;charset=utf-8")
	fmt.Fprintf(w, `{"%s":%s,"sign":"%s"}`, node, content, signature)
}

// check returns Alipay's sub code for a request that its gateway refuses.
func (s *standIn) check(form url.Values) string {
	at, err := time.ParseInLocation(time.DateTime, form.Get("timestamp"), time.FixedZone("", 8*60*60))
	var keys []string
	for key := range form {
		if key != "sign" && form.Get(key) != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		keys[i] = key + "=" + form.Get(key)
	}
	sum := sha256.Sum256([]byte(strings.Join(keys, "&")))
	signature, _ := base64.StdEncoding.DecodeString(form.Get("sign"))
	switch {
	case form.Get("app_id") != appID:
		return "isv.invalid-app-id"
	case form.Get("sign_type") != "RSA2" || form.Get("version") != "1.0" || form.Get("charset") != "utf-8" || form.Get("format") != "JSON":
		return "isv.invalid-parameter"
	case form.Get("app_cert_sn") != s.appSerial || form.Get("alipay_root_cert_sn") != s.rootSerial:
		return "isv.invalid-cert-sn"
	case err != nil || time.Since(at).Abs() > 15*time.Minute:
		return "isv.invalid-timestamp"
	case rsa.VerifyPKCS1v15(&shopKey.PublicKey, crypto.SHA256, sum[:], signature) != nil:
		return "isv.invalid-signature"
	}
	return ""
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.URL.Path != "/gateway.do" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	method := r.PostForm.Get("method")
	s.calls = append(s.calls, method)
	node := strings.ReplaceAll(method, ".", "_") + "_response"
	if s.before != nil && s.before(w, method) {
		return
	}
	if refusal := s.check(r.PostForm); refusal != "" {
		fmt.Fprintf(w, `{"%s":{"code":"40002","msg":"Invalid Arguments","sub_code":"%s"}}`, node, refusal) // not signed
		return
	}
	var content struct {
		OutTradeNo string `json:"out_trade_no"`
	}
	if err := json.Unmarshal([]byte(r.PostForm.Get("biz_content")), &content); err != nil {
		s.answer(w, node, "40004", object{"sub_code": "ACQ.INVALID_PARAMETER"})
		return
	}
	trade := object{"out_trade_no": content.OutTradeNo}
	status, ok := s.status[content.OutTradeNo]
	switch {
	case !ok:
		trade["sub_code"] = "ACQ.TRADE_NOT_EXIST"
	case method == "alipay.trade.close" && status != "WAIT_BUYER_PAY":
		trade["sub_code"] = "ACQ.TRADE_STATUS_ERROR"
	case method == "alipay.trade.close":
		s.status[content.OutTradeNo] = "TRADE_CLOSED"
		trade["trade_no"] = "2013112111001004500000675971"
	default:
		trade["trade_no"], trade["trade_status"], trade["store_name"] = "2013112111001004500000675971", status, "证大五道口店 a/b"
		for key, value := range s.extra {
			trade[key] = value
		}
	}
	if trade["sub_code"] != nil {
		s.answer(w, node, "40004", trade)
		return
	}
	s.answer(w, node, "10000", trade)
}

// The clock of this machine is an hour ahead or behind: Alipay's own clock says whether a page has expired.
func TestAPI_APageExpiresByTheClockOfAlipay(t *testing.T) {
	s := start(t)
	for ahead, want := range map[time.Duration]payment.Answer{2 * time.Hour: payment.Cancelled, 0: payment.Unknown, -2 * time.Hour: payment.Unknown} {
		s.before = func(w http.ResponseWriter, _ string) bool {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			return false
		}
		got, err := s.api(t, alipay.Options{}).Cancel(t.Context(), open)
		expect.That(t, got == want && err == nil, "a page that is open for one more hour, Alipay's clock %v ahead: %q, %v; want %q", ahead, got, err, want)
	}
	s.before = func(w http.ResponseWriter, _ string) bool {
		w.Header()["Date"] = nil // the server sends none
		return false
	}
	got, err := s.api(t, alipay.Options{}).Cancel(t.Context(), expired)
	expect.That(t, got == payment.Unknown && err != nil, "Alipay does not say the time: %q, %v", got, err)
}

func (s *standIn) api(t *testing.T, o alipay.Options) *alipay.API {
	t.Helper()
	if o.AppID == "" {
		o.AppID = appID
	}
	if o.PrivateKey == "" {
		o.PrivateKey = apitest.PrivateText(shopKey)
	}
	if o.AlipayPublicKey == "" {
		o.AlipayPublicKey = apitest.PublicText(alipayKey)
	}
	o.Transport = s
	return must.Get(alipay.New(o))(t)
}

func TestAPI_AnswersByTheStatusOfTheTrade(t *testing.T) {
	for _, row := range []struct {
		status, reference  string // status "": the trade does not exist
		extra              object
		cancel, ask, after string
	}{
		{"WAIT_BUYER_PAY", open, nil, "cancelled", "unpaid", "TRADE_CLOSED"},
		{"WAIT_BUYER_PAY", expired, nil, "cancelled", "unpaid", "TRADE_CLOSED"},
		{"WAIT_BUYER_PAY", "alipay:" + number, nil, "cancelled", "unpaid", "TRADE_CLOSED"},
		{"TRADE_CLOSED", open, nil, "cancelled", "unpaid", "TRADE_CLOSED"},
		{"TRADE_CLOSED", open, object{"send_pay_date": "2026-03-01 12:00:00"}, "cancelled", "unpaid", "TRADE_CLOSED"}, // paid, and refunded in full
		{"TRADE_SUCCESS", open, nil, "paid", "paid", "TRADE_SUCCESS"},
		{"TRADE_SUCCESS", expired, nil, "paid", "paid", "TRADE_SUCCESS"},
		{"TRADE_SUCCESS", open, object{"refund_fee": "1.00"}, "paid", "paid", "TRADE_SUCCESS"}, // a part was refunded
		{"TRADE_FINISHED", open, nil, "paid", "paid", "TRADE_FINISHED"},
		{"", open, nil, "unknown", "unknown", ""},
		{"", expired, nil, "cancelled", "unpaid", ""},
	} {
		t.Run(row.status+" "+row.reference, func(t *testing.T) {
			s := start(t)
			s.extra = row.extra
			if row.status != "" {
				s.status[number] = row.status
			}
			api := s.api(t, alipay.Options{})
			got, err := api.Ask(t.Context(), row.reference)
			expect.That(t, string(got) == row.ask && err == nil && !slices.Contains(s.calls, "alipay.trade.close"),
				"Ask: %q, %v, want %q; calls %v", got, err, row.ask, s.calls)
			for range 2 { // a repeated cancel has the same answer
				got, err := api.Cancel(t.Context(), row.reference)
				expect.That(t, string(got) == row.cancel && err == nil, "Cancel: %q, %v, want %q", got, err, row.cancel)
			}
			expect.That(t, s.status[number] == row.after, "its status is %q after the cancel", s.status[number])
		})
	}
}

// The answer is Unknown, and the log says why.
func TestAPI_SaysWhyItDoesNotKnow(t *testing.T) {
	for _, row := range []struct{ status, reference, says string }{
		{"", "alipay:" + number, "add the time at which the page expires"},
		{"TRADE_NEW", "alipay:" + number, `"TRADE_NEW", which this program does not know`},
		{"TRADE_NEW", "alipay:", "alipay:NUMBER:EXPIRES"},
		{"TRADE_NEW", "alipay:a b", "alipay:NUMBER:EXPIRES"},
		{"TRADE_NEW", "alipay:7:soon", "alipay:NUMBER:EXPIRES"},
	} {
		s := start(t)
		if row.status != "" {
			s.status[number] = row.status
		}
		api := s.api(t, alipay.Options{})
		apitest.Failure{Says: row.says}.Check(t, row.reference, api.Ask)
		apitest.Failure{Says: row.says}.Check(t, row.reference, api.Cancel)
	}
}

// on lets a function answer the calls of one method, or change what the stand-in knows: it returns whether it has answered.
func (s *standIn) on(method string, answer func(w http.ResponseWriter) bool) {
	s.before = func(w http.ResponseWriter, called string) bool { return called == "alipay.trade."+method && answer(w) }
}

// The customer pays between the order being due and the close, or just after Alipay said that there is no such trade.
func TestAPI_APaymentDuringTheCancelIsPaid(t *testing.T) {
	for _, exists := range []bool{true, false} {
		s := start(t)
		if exists {
			s.status[number] = "WAIT_BUYER_PAY"
		}
		s.on("close", func(w http.ResponseWriter) bool {
			if s.status[number] = "TRADE_SUCCESS"; !exists {
				s.answer(w, "alipay_trade_close_response", "40004", object{"sub_code": "ACQ.TRADE_NOT_EXIST"})
			}
			return !exists
		})
		got, err := s.api(t, alipay.Options{}).Cancel(t.Context(), expired)
		expect.That(t, got == payment.Paid && err == nil, "exists: %t: %q, %v", exists, got, err)
	}
}

func TestAPI_AnOpenTradeIsOneCall(t *testing.T) {
	s := start(t)
	s.status[number] = "WAIT_BUYER_PAY"
	must.Get(s.api(t, alipay.Options{}).Cancel(t.Context(), open))(t)
	diff := cmp.Diff([]string{"alipay.trade.close"}, s.calls)
	expect.That(t, diff == "" && s.hosts[0] == "openapi.alipay.com", "calls at %s (-want +got):\n%s", s.hosts[0], diff)
	_, err := s.api(t, alipay.Options{Sandbox: true}).Ask(t.Context(), open)
	expect.That(t, err == nil && s.hosts[1] == "openapi-sandbox.dl.alipaydev.com", "the sandbox is at %s, %v", s.hosts[1], err)
}

// Alipay refuses to close a trade that is still open: so it can be paid.
func TestAPI_ATradeThatIsNotClosedStaysUnknown(t *testing.T) {
	for _, code := range []string{"ACQ.REASON_TRADE_STATUS_INVALID", "ACQ.REASON_ILLEGAL_STATUS", "ACQ.INVALID_PARAMETER"} {
		s := start(t)
		s.status[number] = "WAIT_BUYER_PAY"
		s.on("close", func(w http.ResponseWriter) bool {
			s.answer(w, "alipay_trade_close_response", "40004", object{"sub_code": code, "sub_msg": "the message"})
			return true
		})
		apitest.Failure{Says: code + " the message"}.Check(t, open, s.api(t, alipay.Options{}).Cancel)
	}
}

// A response is believed only with Alipay's signature over its bytes, and if it is about the trade. All of these would say that the trade has ended.
func TestAPI_BelievesOnlyResponsesOfAlipay(t *testing.T) {
	for name, forge := range map[string]func(s *standIn, w http.ResponseWriter, node, content string){
		"another key": func(s *standIn, w http.ResponseWriter, node, content string) {
			s.write(w, node, content, apitest.Sign(otherKey, content))
		},
		"the shop's own key": func(s *standIn, w http.ResponseWriter, node, content string) {
			s.write(w, node, content, apitest.Sign(shopKey, content))
		},
		"empty signature": func(s *standIn, w http.ResponseWriter, node, content string) { s.write(w, node, content, "") },
		"no signature": func(_ *standIn, w http.ResponseWriter, node, content string) {
			fmt.Fprintf(w, `{"%s":%s}`, node, content)
		},
		"signature of other bytes": func(s *standIn, w http.ResponseWriter, node, content string) {
			s.write(w, node, content, apitest.Sign(alipayKey, strings.Replace(content, "TRADE_CLOSED", "WAIT_BUYER_PAY", 1)+" "))
		},
		"changed after signing": func(s *standIn, w http.ResponseWriter, node, content string) {
			s.write(w, node, strings.Replace(content, `"code"`, ` "code"`, 1), apitest.Sign(alipayKey, content))
		},
		"signature is a number": func(_ *standIn, w http.ResponseWriter, node, content string) {
			fmt.Fprintf(w, `{"%s":%s,"sign":17}`, node, content)
		},
		"another trade": func(s *standIn, w http.ResponseWriter, node, content string) {
			content = strings.Replace(content, number, "ORDER18", 1)
			s.write(w, node, content, apitest.Sign(alipayKey, content))
		},
		"another method": func(s *standIn, w http.ResponseWriter, _, content string) {
			s.write(w, "alipay_trade_refund_response", content, apitest.Sign(alipayKey, content))
		},
		"no JSON": func(_ *standIn, w http.ResponseWriter, _, _ string) { fmt.Fprint(w, "<html>") },
	} {
		for _, content := range []string{
			`{"code":"10000","msg":"Success","out_trade_no":"` + number + `","trade_status":"TRADE_CLOSED"}`,
			`{"code":"40004","msg":"Business Failed","out_trade_no":"` + number + `","sub_code":"ACQ.TRADE_NOT_EXIST"}`,
		} {
			s := start(t)
			s.before = func(w http.ResponseWriter, method string) bool {
				forge(s, w, strings.ReplaceAll(method, ".", "_")+"_response", content)
				return true
			}
			apitest.BelievesNot(t, name, expired, s.api(t, alipay.Options{}))
		}
	}
}

// The signature covers the response but not the method: the answer to a query may arrive as the answer to a close.
func TestAPI_CancelBelievesNoAnswerToAQuery(t *testing.T) {
	for _, status := range []string{"WAIT_BUYER_PAY", "TRADE_SUCCESS", "TRADE_CLOSED"} {
		s := start(t)
		s.before = func(w http.ResponseWriter, method string) bool {
			content := `{"code":"10000","msg":"Success","out_trade_no":"` + number + `","trade_status":"` + status + `"}`
			s.write(w, strings.ReplaceAll(method, ".", "_")+"_response", content, apitest.Sign(alipayKey, content))
			return true
		}
		apitest.Failure{Unavailable: true}.Check(t, open, s.api(t, alipay.Options{}).Cancel)
	}
}

// Some responses have \/ in their bytes and / in the bytes that Alipay has signed.
func TestAPI_ASlashMayBeEscaped(t *testing.T) {
	for _, signedText := range []string{`a/b`, `a\/b`} {
		s := start(t)
		s.on("query", func(w http.ResponseWriter) bool {
			content := `{"code":"10000","out_trade_no":"` + number + `","trade_status":"TRADE_SUCCESS","store_name":"a\/b"}`
			s.write(w, "alipay_trade_query_response", content, apitest.Sign(alipayKey, strings.Replace(content, `a\/b`, signedText, 1)))
			return true
		})
		got, err := s.api(t, alipay.Options{}).Ask(t.Context(), open)
		expect.That(t, got == payment.Paid && err == nil, "%s: %q, %v", signedText, got, err)
	}
}

func TestAPI_SaysWhetherAlipayOrThePaymentIsAtFault(t *testing.T) {
	answer := func(code, subCode string) func(*standIn, http.ResponseWriter, string) bool {
		return func(s *standIn, w http.ResponseWriter, node string) bool {
			s.answer(w, node, code, object{"sub_code": subCode})
			return true
		}
	}
	status := func(code int, retryAfter string) func(*standIn, http.ResponseWriter, string) bool {
		return func(_ *standIn, w http.ResponseWriter, _ string) bool {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
			return true
		}
	}
	for name, row := range map[string]struct {
		before  func(s *standIn, w http.ResponseWriter, node string) bool
		options alipay.Options
		fails   apitest.Failure
	}{
		"rate limit":            {before: answer("40005", "isv.app-call-limited"), fails: apitest.Failure{Unavailable: true, Says: "Call Limited"}},
		"rate limit of a proxy": {before: status(429, "7"), fails: apitest.Failure{Unavailable: true, After: 7 * time.Second, Says: "HTTP 429"}},
		"429 without a time":    {before: status(429, ""), fails: apitest.Failure{Unavailable: true, Says: "HTTP 429"}},
		"gateway away":          {before: status(502, ""), fails: apitest.Failure{Unavailable: true, Says: "HTTP 502"}},
		"system error":          {before: answer("40004", "ACQ.SYSTEM_ERROR"), fails: apitest.Failure{Unavailable: true, Says: "ACQ.SYSTEM_ERROR"}},
		"service unavailable":   {before: answer("20000", "isp.unknow-error"), fails: apitest.Failure{Unavailable: true, Says: "isp.unknow-error"}},
		"permission": {before: answer("40006", "isv.insufficient-isv-permissions"),
			fails: apitest.Failure{Unavailable: true, Says: "may the app query and close"}},
		"no access":                {before: answer("40004", "ACQ.ACCESS_FORBIDDEN"), fails: apitest.Failure{Unavailable: true, Says: "may the app query and close"}},
		"no public key at Alipay":  {before: answer("40003", "isv.missing-signature-config"), fails: apitest.Failure{Unavailable: true, Says: "private key right"}},
		"a code of tomorrow":       {before: answer("49999", "x"), fails: apitest.Failure{Unavailable: true, Says: "49999"}},
		"parameter":                {before: answer("40004", "ACQ.INVALID_PARAMETER"), fails: apitest.Failure{Says: "ACQ.INVALID_PARAMETER"}},
		"parameter of the gateway": {before: answer("40002", "isv.invalid-parameter"), fails: apitest.Failure{Says: "isv.invalid-parameter"}},
		"error node": {before: func(s *standIn, w http.ResponseWriter, _ string) bool {
			s.answer(w, "error_response", "20000", object{"sub_code": "aop.unknow-error"})
			return true
		}, fails: apitest.Failure{Unavailable: true, Says: "aop.unknow-error"}},
		"app id":      {options: alipay.Options{AppID: "2021000000000001"}, fails: apitest.Failure{Unavailable: true, Says: "isv.invalid-app-id"}},
		"private key": {options: alipay.Options{PrivateKey: apitest.PrivateText(otherKey)}, fails: apitest.Failure{Unavailable: true, Says: "isv.invalid-signature"}},
		"public key": {options: alipay.Options{AlipayPublicKey: apitest.PublicText(otherKey)}, fails: apitest.Failure{Unavailable: true,
			Says: "is Alipay's public key that of this app"}},
		"no response": {before: func(*standIn, http.ResponseWriter, string) bool { panic(http.ErrAbortHandler) }, fails: apitest.Failure{Unavailable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.status[number] = "WAIT_BUYER_PAY"
			if row.before != nil {
				s.before = func(w http.ResponseWriter, method string) bool {
					return row.before(s, w, strings.ReplaceAll(method, ".", "_")+"_response")
				}
			}
			api := s.api(t, row.options)
			row.fails.Check(t, open, api.Cancel)
			row.fails.Check(t, open, api.Ask)
		})
	}
}

// The answer to a close is lost: the trade is closed, and the next cancel finds that.
func TestAPI_ACancelAfterALostAnswer(t *testing.T) {
	s := start(t)
	s.status[number] = "WAIT_BUYER_PAY"
	s.on("close", func(http.ResponseWriter) bool {
		s.before, s.status[number] = nil, "TRADE_CLOSED"
		panic(http.ErrAbortHandler)
	})
	apitest.LostAnswer(t, s.api(t, alipay.Options{}), open)
}

func TestAPI_ReturnsSoonAfterTheCallerHasGone(t *testing.T) {
	s := start(t)
	apitest.CallerGone(t, s.api(t, alipay.Options{}), open, func(wait func()) { s.before = func(http.ResponseWriter, string) bool { wait(); return true } })
}

// certificate returns a certificate of key in PEM, of the issuer that signs those of apps, and its name at Alipay.
func certificate(t *testing.T, key *rsa.PrivateKey, algorithm x509.SignatureAlgorithm, serial int64) (text, name string) {
	t.Helper()
	issuer := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{
		Country: []string{"CN"}, Organization: []string{"Ant Financial"}, OrganizationalUnit: []string{"Certification Authority"},
		CommonName: "Ant Financial Certification Authority Class 2 R1",
	}}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "the shop"}, SignatureAlgorithm: algorithm}
	var signer crypto.Signer = alipayKey
	if algorithm == x509.ECDSAWithSHA256 {
		ec := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		signer = ec
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer))(t)
	sum := md5.Sum(fmt.Appendf(nil, "CN=Ant Financial Certification Authority Class 2 R1,OU=Certification Authority,O=Ant Financial,C=CN%d", serial))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), hex.EncodeToString(sum[:])
}

// An app in certificate mode names its certificate and Alipay's root certificates, and has Alipay's certificate in place of its key.
func TestAPI_AnAppInCertificateMode(t *testing.T) {
	s := start(t)
	s.status[number] = "WAIT_BUYER_PAY"
	app, appName := certificate(t, shopKey, x509.SHA256WithRSA, 1<<62)
	root1, name1 := certificate(t, alipayKey, x509.SHA256WithRSA, 17)
	root2, name2 := certificate(t, alipayKey, x509.SHA512WithRSA, 18)
	notRSA, _ := certificate(t, alipayKey, x509.ECDSAWithSHA256, 19)
	unreadable := "-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n"
	s.appSerial, s.rootSerial = appName, name1+"_"+name2
	own, _ := certificate(t, alipayKey, x509.SHA256WithRSA, 20)
	api := s.api(t, alipay.Options{AlipayPublicKey: own, AppCertificate: app, RootCertificates: root1 + notRSA + unreadable + root2})
	got, err := api.Cancel(t.Context(), open)
	expect.That(t, got == payment.Cancelled && err == nil, "%q, %v", got, err)
	apitest.Failure{Unavailable: true, Says: "isv.invalid-cert-sn"}.Check(t, open, s.api(t, alipay.Options{}).Cancel)
	for says, o := range map[string]alipay.Options{
		"app certificate: it is not a certificate":          {RootCertificates: root1},
		"root certificates: it has no certificate in PEM":   {AppCertificate: app},
		"root certificates: it has no certificate in PEM t": {AppCertificate: app, RootCertificates: notRSA},
		"app certificate: it does not belong to the":        {AppCertificate: own, RootCertificates: root1},
	} {
		o.AppID, o.PrivateKey, o.AlipayPublicKey = appID, apitest.PrivateText(shopKey), own
		_, err := alipay.New(o)
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%v, want %s", err, says)
	}
}

func TestAPI_OwnsReferencesWithItsPrefix(t *testing.T) {
	apitest.Owns(t, start(t).api(t, alipay.Options{}), map[string]bool{"alipay:7": true, "alipay:7:1767225600": true, "wechatpay:7": false,
		"ALIPAY7ALIPAY7": false, "cs_1": false, "": false})
}

func TestNew_SaysWhatIsWrong(t *testing.T) {
	good := alipay.Options{AppID: appID, PrivateKey: apitest.PrivateText(shopKey), AlipayPublicKey: apitest.PublicText(alipayKey)}
	for says, change := range map[string]func(o *alipay.Options){
		"need an AppID": func(o *alipay.Options) { o.AppID = "" },
		"alipay: private key: it is a public key":                func(o *alipay.Options) { o.PrivateKey = apitest.PublicText(shopKey) },
		"alipay: Alipay's public key: it is your own public key": func(o *alipay.Options) { o.AlipayPublicKey = apitest.PublicText(shopKey) },
	} {
		o := good
		change(&o)
		_, err := alipay.New(o)
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%v", err)
	}
}
