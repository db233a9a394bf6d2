package wechatpay_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments/internal/apitest"
	"github.com/orderclose/orderclose/payments/wechatpay"
)

type object = map[string]any

const (
	merchant = "1900000109"
	serial   = "5157F09EFDC096DE15EBE81A47057A7232F1B8E1"
	keyID    = "PUB_KEY_ID_0119000001092024110100000000000001"
	number   = "ORDER|17*a" // WeChat Pay allows these characters; the path has them escaped
)

var (
	shopKey  = apitest.NewKey()
	wechat   = apitest.NewKey()
	otherKey = apitest.NewKey()

	open    = fmt.Sprintf("wechatpay:%s:%d", number, time.Now().Add(time.Hour).Unix())  // it may be created
	expired = fmt.Sprintf("wechatpay:%s:%d", number, time.Now().Add(-time.Hour).Unix()) // it may not
)

// standIn behaves as WeChat Pay's public API v3 does: signatures on both sides, query and close by out_trade_no.
type standIn struct {
	server *httptest.Server
	// before is called before each request is answered; if it returns true, it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool
	// Of the signatures of responses:
	key      *rsa.PrivateKey
	serial   string
	skew     time.Duration
	unsigned bool
	tamper   func(body string) string // of what is sent, after the signature

	mu    sync.Mutex
	calls []string
	state map[string]string // of orders by out_trade_no
}

func start(t *testing.T) *standIn {
	s := &standIn{key: wechat, serial: keyID, state: map[string]string{}, tamper: func(body string) string { return body }}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// RoundTrip sends every call to the stand-in.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "api.mch.weixin.qq.com" || r.URL.Scheme != "https" {
		return nil, fmt.Errorf("a call of %v", r.URL)
	}
	return apitest.Send(r, s.server)
}

// answer writes a response with its signature.
func (s *standIn) answer(w http.ResponseWriter, status int, content object) {
	body := ""
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			panic(err)
		}
		body = string(text)
	}
	if !s.unsigned {
		at, nonce := strconv.FormatInt(time.Now().Add(s.skew).Unix(), 10), rand.Text()
		w.Header().Set("Wechatpay-Timestamp", at)
		w.Header().Set("Wechatpay-Nonce", nonce)
		w.Header().Set("Wechatpay-Serial", s.serial)
		w.Header().Set("Wechatpay-Signature", apitest.Sign(s.key, at+"\n"+nonce+"\n"+body+"\n"))
	}
	w.Header().Set("Request-Id", "08F5B8C2B506")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s.tamper(body))
}

var authorization = regexp.MustCompile(`^WECHATPAY2-SHA256-RSA2048 ` +
	`mchid="([^"]*)",nonce_str="([^"]{16,32})",signature="([^"]*)",timestamp="(\d+)",serial_no="([^"]*)"$`)

// check returns why WeChat Pay refuses a request, or "".
func check(r *http.Request, body string) string {
	part := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if part == nil || r.Header.Get("Accept") != "application/json" || r.Header.Get("User-Agent") == "" || r.Header.Get("Wechatpay-Serial") == "" {
		return "the headers are wrong"
	}
	seconds, err := strconv.ParseInt(part[4], 10, 64)
	sum := sha256.Sum256([]byte(r.Method + "\n" + r.RequestURI + "\n" + part[4] + "\n" + part[2] + "\n" + body + "\n"))
	signature, _ := base64.StdEncoding.DecodeString(part[3])
	switch {
	case part[1] != merchant || part[5] != serial:
		return "merchant and certificate do not match"
	case err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute:
		return "the timestamp is old"
	case rsa.VerifyPKCS1v15(&shopKey.PublicKey, crypto.SHA256, sum[:], signature) != nil:
		return "the signature is wrong"
	}
	return ""
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r.Method+" "+r.RequestURI)
	if s.before != nil && s.before(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if refusal := check(r, string(body)); err != nil || refusal != "" {
		w.WriteHeader(http.StatusUnauthorized) // not signed
		fmt.Fprintf(w, `{"code":"SIGN_ERROR","message":%q}`, refusal)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v3/pay/transactions/out-trade-no/")
	id, closes := strings.CutSuffix(path, "/close")
	state, exists := s.state[id]
	switch {
	case !ok || closes != (r.Method == http.MethodPost):
		s.answer(w, http.StatusNotFound, object{"code": "RESOURCE_NOT_EXISTS", "message": "no such path"})
	case closes && string(body) != `{"mchid":"`+merchant+`"}`, !closes && r.URL.Query().Get("mchid") != merchant:
		s.answer(w, http.StatusBadRequest, object{"code": "PARAM_ERROR", "message": "mchid"})
	case !exists:
		s.answer(w, http.StatusNotFound, object{"code": "ORDER_NOT_EXIST", "message": "订单不存在"})
	case !closes:
		s.answer(w, http.StatusOK, object{"mchid": merchant, "out_trade_no": id, "trade_state": state, "trade_state_desc": "支付状态"})
	case state == "NOTPAY":
		s.state[id] = "CLOSED"
		s.answer(w, http.StatusNoContent, nil)
	case state == "CLOSED":
		s.answer(w, http.StatusBadRequest, object{"code": "ORDER_CLOSED", "message": "订单已关闭"})
	case state == "USERPAYING":
		s.answer(w, http.StatusAccepted, object{"code": "USERPAYING", "message": "用户支付中"})
	default:
		s.answer(w, http.StatusBadRequest, object{"code": "ORDERPAID", "message": "订单已支付"})
	}
}

// The clock of this machine is four minutes ahead or behind: WeChat Pay's own clock says whether an order has expired.
func TestAPI_AnOrderExpiresByTheClockOfWeChatPay(t *testing.T) {
	s := start(t)
	reference := fmt.Sprintf("wechatpay:%s:%d", number, time.Now().Unix())
	for ahead, want := range map[time.Duration]payment.Answer{4 * time.Minute: payment.Cancelled, -4 * time.Minute: payment.Unknown} {
		s.skew = ahead
		got, err := s.api(t, nil).Cancel(t.Context(), reference)
		expect.That(t, got == want && err == nil, "WeChat Pay's clock %v ahead: %q, %v; want %q", ahead, got, err, want)
	}
}

func (s *standIn) api(t *testing.T, change func(o *wechatpay.Options)) *wechatpay.API {
	t.Helper()
	o := options()
	o.Transport = s
	if change != nil {
		change(&o)
	}
	return must.Get(wechatpay.New(o))(t)
}

func options() wechatpay.Options {
	return wechatpay.Options{MerchantID: merchant, CertificateSerial: serial, PrivateKey: apitest.PrivateText(shopKey), PublicKeyID: keyID,
		PublicKey: apitest.PublicText(wechat)}
}

func TestAPI_AnswersByTheStateOfTheOrder(t *testing.T) {
	for _, row := range []struct {
		state, reference   string // state "": the order does not exist
		cancel, ask, after string
		says               string // in the log; "": nothing
	}{
		{"NOTPAY", open, "cancelled", "unpaid", "CLOSED", ""},
		{"NOTPAY", expired, "cancelled", "unpaid", "CLOSED", ""},
		{"NOTPAY", "wechatpay:" + number, "cancelled", "unpaid", "CLOSED", ""},
		{"CLOSED", open, "cancelled", "unpaid", "CLOSED", ""},
		{"REVOKED", open, "cancelled", "unpaid", "REVOKED", ""},
		{"SUCCESS", open, "paid", "paid", "SUCCESS", ""},
		{"SUCCESS", expired, "paid", "paid", "SUCCESS", ""},
		{"USERPAYING", open, "unknown", "unknown", "USERPAYING", ""},
		{"REFUND", open, "unknown", "unknown", "REFUND", "does not say whether in full"},
		{"PAYERROR", open, "unknown", "unknown", "PAYERROR", `"PAYERROR"`},
		{"ACCEPT", open, "unknown", "unknown", "ACCEPT", `"ACCEPT"`},
		{"", open, "unknown", "unknown", "", ""},
		{"", expired, "cancelled", "unpaid", "", ""},
		{"", "wechatpay:" + number, "unknown", "unknown", "", "add the time at which the page expires"},
		{"NOTPAY", "wechatpay:a b", "unknown", "unknown", "NOTPAY", "wechatpay:NUMBER:EXPIRES"},
	} {
		t.Run(row.state+" "+row.reference, func(t *testing.T) {
			s := start(t)
			if row.state != "" {
				s.state[number] = row.state
			}
			api := s.api(t, nil)
			check := func(name string, got payment.Answer, err error, want string) {
				t.Helper()
				if string(got) != want || (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) ||
					errors.Is(err, orderclose.ErrUnavailable) {
					t.Errorf("%s: %q, %v, want %q", name, got, err, want)
				}
			}
			got, err := api.Ask(t.Context(), row.reference)
			check("Ask", got, err, row.ask)
			expect.That(t, s.state[number] == row.state, "its state is %q after Ask", s.state[number])
			for range 2 { // a repeated cancel has the same answer
				got, err = api.Cancel(t.Context(), row.reference)
				check("Cancel", got, err, row.cancel)
			}
			expect.That(t, s.state[number] == row.after, "its state is %q after Cancel", s.state[number])
		})
	}
}

// onClose lets a function answer closes, or change what the stand-in knows: it returns whether it has answered.
func (s *standIn) onClose(answer func(w http.ResponseWriter) bool) {
	s.before = func(w http.ResponseWriter, r *http.Request) bool { return r.Method == http.MethodPost && answer(w) }
}

// The customer pays between the order being due and the close, or just after WeChat Pay said that there is no such order.
func TestAPI_APaymentDuringTheCancelIsPaid(t *testing.T) {
	for _, exists := range []bool{true, false} {
		s := start(t)
		if exists {
			s.state[number] = "NOTPAY"
		}
		s.onClose(func(w http.ResponseWriter) bool {
			if s.state[number] = "SUCCESS"; !exists {
				s.answer(w, http.StatusNotFound, object{"code": "ORDERNOTEXIST"})
			}
			return !exists
		})
		got, err := s.api(t, nil).Cancel(t.Context(), expired)
		expect.That(t, got == payment.Paid && err == nil, "exists: %t: %q, %v", exists, got, err)
	}
}

func TestAPI_AnOpenOrderIsOneCall(t *testing.T) {
	s := start(t)
	s.state[number] = "NOTPAY"
	must.Get(s.api(t, nil).Cancel(t.Context(), open))(t)
	expect.Same(t, s.calls, []string{"POST /v3/pay/transactions/out-trade-no/ORDER%7C17%2Aa/close"}, "calls")
}

// An order must have existed for some minutes before it can be closed. Until then it can be paid.
func TestAPI_AnOrderThatIsNotClosedStaysUnknown(t *testing.T) {
	s := start(t)
	s.state[number] = "NOTPAY"
	s.onClose(func(w http.ResponseWriter) bool {
		s.answer(w, http.StatusForbidden, object{"code": "TRADE_ERROR", "message": "too early"})
		return true
	})
	api := s.api(t, nil)
	apitest.Failure{Says: "TRADE_ERROR too early"}.Check(t, open, api.Cancel)
	s.before = nil
	got, err := api.Cancel(t.Context(), open)
	expect.That(t, got == payment.Cancelled && err == nil, "some minutes later: %q, %v", got, err)
}

// A response is believed only with a signature of WeChat Pay that is five minutes old at most, and if it is about the
// order. All of these would say that the order has ended.
func TestAPI_BelievesOnlyResponsesOfWeChatPay(t *testing.T) {
	for name, row := range map[string]struct {
		forge func(s *standIn)
		says  string
	}{
		"another key":       {func(s *standIn) { s.key = otherKey }, "does the public key belong"},
		"another serial":    {func(s *standIn) { s.serial = "PUB_KEY_ID_2" }, `with the key "PUB_KEY_ID_2"`},
		"no signature":      {func(s *standIn) { s.unsigned = true }, "is not signed"},
		"six minutes old":   {func(s *standIn) { s.skew = -6 * time.Minute }, "is it right?"},
		"of the future":     {func(s *standIn) { s.skew = 6 * time.Minute }, "is it right?"},
		"probe of WeChat":   {func(s *standIn) { s.before = s.probe }, "does not have"},
		"another body":      {func(s *standIn) { s.tamper = func(body string) string { return body + " " } }, "does not have"},
		"another order":     {func(s *standIn) { s.before = s.about("ORDER18", merchant) }, `answered about "ORDER18"`},
		"another merchant":  {func(s *standIn) { s.before = s.about(number, "1900000110") }, `of "1900000110"`},
		"a list":            {func(s *standIn) { s.tamper = func(string) string { return "[]" } }, "does not have"},
		"a page of a proxy": {func(s *standIn) { s.unsigned, s.tamper = true, func(string) string { return "<html>" } }, "is not signed"},
	} {
		for _, state := range []string{"CLOSED", ""} { // it is closed, or does not exist
			s := start(t)
			if state != "" {
				s.state[number] = state
			}
			row.forge(s)
			api := s.api(t, nil)
			apitest.BelievesNot(t, name, expired, api)
			expect.Says(t, expect.Err(api.Ask(t.Context(), expired)), row.says, "%s", name)
		}
	}
}

// probe answers with a signature that is wrong on purpose.
func (s *standIn) probe(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Wechatpay-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	w.Header().Set("Wechatpay-Nonce", "d824f2e086d3c1df967785d13fcd22ef")
	w.Header().Set("Wechatpay-Serial", keyID)
	w.Header().Set("Wechatpay-Signature", "WECHATPAY/SIGNTEST/mfI1CPqvBrgcXfgXMFjdNIhBf27ACE2Yye")
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	fmt.Fprintf(w, `{"mchid":%q,"out_trade_no":%q,"trade_state":"CLOSED"}`, merchant, number)
	return true
}

// about refuses to close, and answers a question with another order.
func (s *standIn) about(order, mchid string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			s.answer(w, http.StatusBadRequest, object{"code": "ORDER_CLOSED"})
		} else {
			s.answer(w, http.StatusOK, object{"mchid": mchid, "out_trade_no": order, "trade_state": "CLOSED"})
		}
		return true
	}
}

// Only the status No Content says that an order was closed.
func TestAPI_OnlyNoContentIsAClose(t *testing.T) {
	for _, status := range []int{200, 201, 202, 302, 400, 404} {
		s := start(t)
		s.state[number] = "NOTPAY"
		s.onClose(func(w http.ResponseWriter) bool {
			s.answer(w, status, object{})
			return true
		})
		got, err := s.api(t, nil).Cancel(t.Context(), open)
		expect.That(t, got == payment.Unknown && err != nil, "%d: %q, %v", status, got, err)
	}
}

func TestAPI_SaysWhetherWeChatPayOrThePaymentIsAtFault(t *testing.T) {
	answer := func(status int, code, retryAfter string, unsigned bool) func(*standIn) {
		return func(s *standIn) {
			s.unsigned = unsigned
			s.before = func(w http.ResponseWriter, _ *http.Request) bool {
				if retryAfter != "" {
					w.Header().Set("Retry-After", retryAfter)
				}
				s.answer(w, status, object{"code": code, "message": "the message"})
				return true
			}
		}
	}
	for name, row := range map[string]struct {
		prepare func(s *standIn)
		options func(o *wechatpay.Options)
		fails   apitest.Failure
	}{
		"rate limit": {prepare: answer(429, "FREQUENCY_LIMITED", "7", false), fails: apitest.Failure{Unavailable: true, After: 7 * time.Second,
			Says: "FREQUENCY_LIMITED the message"}},
		"rate limit, no time":  {prepare: answer(429, "FREQUENCY_LIMITED", "", false), fails: apitest.Failure{Unavailable: true, Says: "FREQUENCY_LIMITED"}},
		"rate limit, unsigned": {prepare: answer(429, "", "3", true), fails: apitest.Failure{Unavailable: true, After: 3 * time.Second, Says: "answered 429"}},
		"rule limit":           {prepare: answer(403, "RULE_LIMIT", "", false), fails: apitest.Failure{Unavailable: true, Says: "RULE_LIMIT"}},
		"system error":         {prepare: answer(500, "SYSTEM_ERROR", "", false), fails: apitest.Failure{Unavailable: true, Says: "answered 500: SYSTEM_ERROR"}},
		"gateway":              {prepare: answer(502, "", "", true), fails: apitest.Failure{Unavailable: true, Says: "answered 502"}},
		"no right":             {prepare: answer(403, "NO_AUTH", "", false), fails: apitest.Failure{Unavailable: true, Says: "may the merchant query and close"}},
		"no merchant":          {prepare: answer(400, "MCH_NOT_EXISTS", "", false), fails: apitest.Failure{Unavailable: true, Says: "do merchant id"}},
		"parameter":            {prepare: answer(400, "PARAM_ERROR", "", false), fails: apitest.Failure{Says: "PARAM_ERROR"}},
		"no such path":         {prepare: answer(404, "NOT_FOUND", "", false), fails: apitest.Failure{Says: "NOT_FOUND"}},
		"parameter, unsigned": {prepare: answer(400, "PARAM_ERROR", "", true), fails: apitest.Failure{Unavailable: true,
			Says: "so it is not believed. It says: answered 400: PARAM_ERROR"}},
		"private key": {options: func(o *wechatpay.Options) { o.PrivateKey = apitest.PrivateText(otherKey) },
			fails: apitest.Failure{Unavailable: true, Says: "the signature is wrong"}},
		"serial": {options: func(o *wechatpay.Options) { o.CertificateSerial = "1" }, fails: apitest.Failure{Unavailable: true, Says: "belong together"}},
		"public key": {options: func(o *wechatpay.Options) { o.PublicKey = apitest.PublicText(otherKey) },
			fails: apitest.Failure{Unavailable: true, Says: "does the public key belong"}},
		"public key id": {options: func(o *wechatpay.Options) { o.PublicKeyID = "PUB_KEY_ID_2" },
			fails: apitest.Failure{Unavailable: true, Says: `not with "PUB_KEY_ID_2"`}},
		"no response": {prepare: func(s *standIn) {
			s.before = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		}, fails: apitest.Failure{Unavailable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.state[number] = "NOTPAY"
			if row.prepare != nil {
				row.prepare(s)
			}
			api := s.api(t, row.options)
			row.fails.Check(t, open, api.Cancel)
			row.fails.Check(t, open, api.Ask)
		})
	}
}

// The answer to a close is lost: the order is closed, and the next cancel finds that.
func TestAPI_ACancelAfterALostAnswer(t *testing.T) {
	s := start(t)
	s.state[number] = "NOTPAY"
	s.onClose(func(http.ResponseWriter) bool {
		s.before, s.state[number] = nil, "CLOSED"
		panic(http.ErrAbortHandler)
	})
	apitest.LostAnswer(t, s.api(t, nil), open)
}

func TestAPI_ReturnsSoonAfterTheCallerHasGone(t *testing.T) {
	s := start(t)
	apitest.CallerGone(t, s.api(t, nil), open, func(wait func()) { s.before = func(http.ResponseWriter, *http.Request) bool { wait(); return true } })
}

func TestAPI_OwnsReferencesWithItsPrefix(t *testing.T) {
	apitest.Owns(t, start(t).api(t, nil), map[string]bool{"wechatpay:7": true, "wechatpay:7:1767225600": true, "alipay:7": false,
		"5O190127TN364715T": false, "": false})
}

func TestNew_SaysWhatIsWrong(t *testing.T) {
	for says, change := range map[string]func(o *wechatpay.Options){
		"need MerchantID, CertificateSerial":                 func(o *wechatpay.Options) { o.CertificateSerial = "" },
		"MerchantID, CertificateSerial and":                  func(o *wechatpay.Options) { o.MerchantID = "" },
		"CertificateSerial and PublicKeyID":                  func(o *wechatpay.Options) { o.PublicKeyID = "" },
		"wechatpay: private key: it is a public key":         func(o *wechatpay.Options) { o.PrivateKey = apitest.PublicText(shopKey) },
		"wechatpay: WeChat Pay's public key: it is your own": func(o *wechatpay.Options) { o.PublicKey = apitest.PublicText(shopKey) },
	} {
		o := options()
		change(&o)
		_, err := wechatpay.New(o)
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%v, want %s", err, says)
	}
}
