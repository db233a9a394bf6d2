// Package wechatpay closes orders at WeChat Pay (API v3: query and close by out_trade_no).
//
// Use New as an API of payments.New. A reference is wechatpay:OUT_TRADE_NO:EXPIRES: the number that the shop has given
// the order at WeChat Pay, and the time in unix seconds at which it expires (time_expire). Cancel closes the order. If
// WeChat Pay refuses that, the order is read, and its state decides:
//
//	trade_state                           Cancel      Ask
//	NOTPAY                                is closed   Unpaid
//	CLOSED, REVOKED                       Cancelled   Unpaid
//	SUCCESS                               Paid        Paid
//	REFUND                                Unknown     Unknown
//	USERPAYING, PAYERROR                  Unknown     Unknown
//	does not exist, and has not expired   Unknown     Unknown
//	does not exist, and has expired       Cancelled   Unpaid
//	all others                            Unknown     Unknown
//
// REFUND is the state after a refund of all or of a part. WeChat Pay does not say which, so a person must look.
// Without EXPIRES, an order that does not exist stays Unknown.
//
// A response is believed if it has WeChat Pay's signature, is at most five minutes old, and names the order. The package
// links no client library: it has two calls.
package wechatpay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

const (
	live   = "https://api.mch.weixin.qq.com"
	prefix = "wechatpay"
	maxAge = 5 * time.Minute // of the signature of a response, by this machine's clock
)

// Options configure an API. All but Transport are required.
type Options struct {
	MerchantID        string            // mchid
	CertificateSerial string            // of the merchant's certificate, in hexadecimal
	PrivateKey        string            // that belongs to the certificate: apiclient_key.pem, PKCS#1 or PKCS#8
	PublicKeyID       string            // PUB_KEY_ID_…, or the serial of a platform certificate
	PublicKey         string            // WeChat Pay's public key, or the platform certificate, in PEM
	Transport         http.RoundTripper // default: http.DefaultTransport
}

// API is a payments.API. Create it with New.
type API struct {
	o      Options
	keys   signed.Keys
	client *http.Client
}

// New returns an API, or an error if the options are invalid.
func New(o Options) (*API, error) {
	if o.MerchantID == "" || o.CertificateSerial == "" || o.PublicKeyID == "" {
		return nil, errors.New("wechatpay: Options need MerchantID, CertificateSerial and PublicKeyID")
	}
	keys, err := signed.NewKeys("private key", o.PrivateKey, "WeChat Pay's public key", o.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("wechatpay: %w", err)
	}
	return &API{o, keys, signed.Client(o.Transport)}, nil
}

// Name implements payments.API.
func (*API) Name() string { return prefix }

// Owns implements payments.API: the references begin with wechatpay:.
func (*API) Owns(reference string) bool { return strings.HasPrefix(reference, prefix+":") }

// Ask implements payments.API.
func (a *API) Ask(ctx context.Context, reference string) (payment.Answer, error) {
	trade, err := signed.ParseTrade(prefix, reference)
	if err != nil {
		return payment.Unknown, err
	}
	return signed.Asked(a.read(ctx, trade))
}

// Cancel implements payments.API. It closes first and reads later: so there is no moment between reading and closing
// in which the customer pays unnoticed.
func (a *API) Cancel(ctx context.Context, reference string) (payment.Answer, error) {
	trade, err := signed.ParseTrade(prefix, reference)
	if err != nil {
		return payment.Unknown, err
	}
	body, err := json.Marshal(map[string]string{"mchid": a.o.MerchantID})
	if err != nil {
		return payment.Unknown, err
	}
	closed, err := a.call(ctx, http.MethodPost, path(trade)+"/close", string(body))
	switch {
	case err != nil:
		return payment.Unknown, err
	case closed.status == http.StatusNoContent: //mutant:wechat-typing-cancelled
		return payment.Cancelled, nil
	case closed.notExist() && trade.MayBeOpened(closed.at):
		return trade.Missing(closed.at)
	}
	answer, err := a.read(ctx, trade)
	if answer == payment.Unpaid {
		return payment.Unknown, fmt.Errorf("it is not paid, and WeChat Pay does not close it: %w", closed.said())
	}
	return answer, err
}

// read returns Paid, Unpaid for an order that can be paid, Cancelled for one that cannot, or Unknown.
func (a *API) read(ctx context.Context, trade signed.Trade) (payment.Answer, error) {
	r, err := a.call(ctx, http.MethodGet, path(trade)+"?mchid="+url.QueryEscape(a.o.MerchantID), "")
	switch {
	case err != nil:
		return payment.Unknown, err
	case r.notExist():
		return trade.Missing(r.at)
	case r.status != http.StatusOK:
		return payment.Unknown, r.said()
	case r.OutTradeNo != trade.Number || r.MchID != a.o.MerchantID:
		return payment.Unknown, &payments.Unavailable{Err: fmt.Errorf("asked about order %s of %s, and answered about %.64q of %.64q",
			trade.Number, a.o.MerchantID, r.OutTradeNo, r.MchID)}
	}
	switch r.TradeState {
	case "SUCCESS":
		return payment.Paid, nil
	case "CLOSED", "REVOKED":
		return payment.Cancelled, nil
	case "NOTPAY":
		return payment.Unpaid, nil
	case "USERPAYING":
		return payment.Unknown, nil
	case "REFUND":
		return payment.Unknown, errors.New("it was paid and refunded, and WeChat Pay does not say whether in full: look there; " +
			"then mark the order as paid, or delete the row of the payment")
	}
	return payment.Unknown, fmt.Errorf("its state is %.40q, of which nobody knows whether it is the last", r.TradeState)
}

func path(trade signed.Trade) string {
	return "/v3/pay/transactions/out-trade-no/" + url.PathEscape(trade.Number)
}

// response is a response to either call.
type response struct {
	status     int
	at         time.Time // when WeChat Pay signed it, by its clock
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	MchID      string    `json:"mchid"`
	OutTradeNo string    `json:"out_trade_no"`
	TradeState string    `json:"trade_state"`
}

func (r response) notExist() bool {
	return r.status == http.StatusNotFound && (r.Code == "ORDER_NOT_EXIST" || r.Code == "ORDERNOTEXIST")
}

// said returns what WeChat Pay said as an error.
func (r response) said() error { return fmt.Errorf("answered %d: %s %s", r.status, r.Code, r.Message) }

// call sends a request. It returns a response that has WeChat Pay's signature. All else is an error.
func (a *API) call(ctx context.Context, method, path, body string) (response, error) {
	request, err := http.NewRequestWithContext(ctx, method, live+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	nonce, now := rand.Text(), strconv.FormatInt(time.Now().Unix(), 10)
	signature, err := a.keys.Sign(lines(method, request.URL.RequestURI(), now, nonce, body))
	if err != nil {
		return response{}, err
	}
	request.Header.Set("Authorization", fmt.Sprintf(`WECHATPAY2-SHA256-RSA2048 mchid="%s",nonce_str="%s",signature="%s",timestamp="%s",serial_no="%s"`,
		a.o.MerchantID, nonce, signature, now, a.o.CertificateSerial))
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "orderclose-payments")
	request.Header.Set("Wechatpay-Serial", a.o.PublicKeyID) // by which key WeChat Pay shall sign
	resp, content, err := signed.Do(a.client, request)
	if err != nil {
		return response{}, err
	}
	r := response{}
	_ = json.Unmarshal(content, &r) // 204 has no content; in all else the code or the state is missing
	r.status = resp.StatusCode
	// An error that only delays the order needs no signature. A request whose signature is wrong has a response without one.
	switch {
	case r.status == http.StatusTooManyRequests, r.status >= http.StatusInternalServerError, r.Code == "RULE_LIMIT":
		return response{}, payments.RetryLater(resp.Header, r.said())
	case r.status == http.StatusUnauthorized, r.Code == "NO_AUTH", r.Code == "MCH_NOT_EXISTS":
		return response{}, &payments.Unavailable{Err: fmt.Errorf("%w: do merchant id, certificate serial and private key belong together, "+
			"is the clock right, and may the merchant query and close orders?", r.said())}
	}
	if r.at, err = a.verify(resp.Header, string(content)); err != nil {
		return response{}, &payments.Unavailable{Err: fmt.Errorf("%w; so it is not believed. It says: %w", err, r.said())}
	}
	return r, nil
}

// lines returns the form in which both sides sign: each part in a line.
func lines(parts ...string) string { return strings.Join(parts, "\n") + "\n" }

// verify returns when WeChat Pay signed a response, or an error if it did not, or long ago.
func (a *API) verify(h http.Header, body string) (time.Time, error) {
	at, serial, signature := h.Get("Wechatpay-Timestamp"), h.Get("Wechatpay-Serial"), h.Get("Wechatpay-Signature")
	switch {
	case signature == "":
		return time.Time{}, errors.New("the response is not signed")
	case serial != a.o.PublicKeyID:
		return time.Time{}, fmt.Errorf("the response is signed with the key %.64q, and not with %.64q: set both public key and public key id",
			serial, a.o.PublicKeyID)
	// WeChat Pay sends a wrong signature now and then, to see whether it is noticed.
	case !a.keys.Verify(lines(at, h.Get("Wechatpay-Nonce"), body), signature): //mutant:wechat-signature-ignored
		return time.Time{}, errors.New("the response does not have WeChat Pay's signature: does the public key belong to the public key id?")
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	stamp := time.Unix(seconds, 0)
	if age := time.Since(stamp); err != nil || age.Abs() > maxAge { //mutant:wechat-old-believed
		return time.Time{}, fmt.Errorf("the response was signed at %s, and this machine's clock says %s: is it right?",
			stamp.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	}
	return stamp, nil
}
