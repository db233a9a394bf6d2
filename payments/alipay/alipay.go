// Package alipay closes trades at Alipay (alipay.trade.query and alipay.trade.close).
//
// Use New as an API of payments.New. A reference is alipay:OUT_TRADE_NO:EXPIRES: the number that the shop has given the
// trade, and the time in unix seconds at which its payment page expires (time_expire). Cancel closes the trade. If
// Alipay refuses that, the trade is read, and its status decides:
//
//	trade                                    Cancel      Ask
//	WAIT_BUYER_PAY                           is closed   Unpaid
//	TRADE_CLOSED, also after a full refund   Cancelled   Unpaid
//	TRADE_SUCCESS, TRADE_FINISHED            Paid        Paid
//	does not exist, the page may be opened   Unknown     Unknown
//	does not exist, the page has expired     Cancelled   Unpaid
//	all others                               Unknown     Unknown
//
// A trade begins to exist when the customer scans the code or logs in, not when the shop opens the page. So a trade
// that does not exist can still be paid until its page expires. Without EXPIRES it stays Unknown.
//
// Requests are signed with RSA2, by an app with keys or with certificates (certificate.go). A response is believed if
// it has Alipay's signature and names the trade; the response to a close has no status. The package links no client library: it has two calls.
package alipay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

// Where Alipay takes calls.
const (
	live    = "https://openapi.alipay.com/gateway.do"
	sandbox = "https://openapi-sandbox.dl.alipaydev.com/gateway.do"
)

const prefix = "alipay"

// Options configure an API. AppID, PrivateKey and AlipayPublicKey are required.
type Options struct {
	AppID           string
	PrivateKey      string            // of the app: PEM or base64, PKCS#1 or PKCS#8
	AlipayPublicKey string            // Alipay's key, which Alipay shows for the app: PEM or base64; in certificate mode Alipay's certificate
	Sandbox         bool              // use Alipay's test environment
	Transport       http.RoundTripper // default: http.DefaultTransport

	// Both are required for an app in certificate mode, and for no other. They are in PEM.
	AppCertificate, RootCertificates string
}

// API is a payments.API. Create it with New.
type API struct {
	o       Options
	url     string
	keys    signed.Keys
	serials url.Values // of the app's certificate and of Alipay's root certificates; empty if the app has none
	client  *http.Client
}

// New returns an API, or an error if the options are invalid.
func New(o Options) (*API, error) {
	if o.AppID == "" {
		return nil, errors.New("alipay: Options need an AppID")
	}
	keys, err := signed.NewKeys("private key", o.PrivateKey, "Alipay's public key", o.AlipayPublicKey)
	if err != nil {
		return nil, fmt.Errorf("alipay: %w", err)
	}
	a := &API{o: o, url: live, keys: keys, client: signed.Client(o.Transport)}
	if o.AppCertificate != "" || o.RootCertificates != "" {
		if err := checkAppCertificate(o.AppCertificate, o.PrivateKey); err != nil {
			return nil, fmt.Errorf("alipay: app certificate: %w", err)
		}
		if err := checkRootCertificates(o.RootCertificates); err != nil {
			return nil, fmt.Errorf("alipay: root certificates: %w", err)
		}
		a.serials = url.Values{"app_cert_sn": {serials(o.AppCertificate)}, "alipay_root_cert_sn": {serials(o.RootCertificates)}}
	}
	if o.Sandbox {
		a.url = sandbox
	}
	return a, nil
}

// Name implements payments.API.
func (*API) Name() string { return prefix }

// Owns implements payments.API: the references begin with alipay:.
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
	closed, err := a.call(ctx, methodClose, trade)
	switch {
	case err != nil:
		return payment.Unknown, err
	case closed.Code == succeeded:
		return payment.Cancelled, nil
	case closed.SubCode == notExist && trade.MayBeOpened(closed.at):
		return trade.Missing(closed.at)
	}
	answer, err := a.read(ctx, trade)
	if answer == payment.Unpaid {
		return payment.Unknown, fmt.Errorf("it is not paid, and Alipay does not close it: %w", closed.said()) //mutant:unclosed-trade-ended
	}
	return answer, err
}

// read returns Paid, Unpaid for a trade that can be paid, Cancelled for one that cannot, or Unknown.
func (a *API) read(ctx context.Context, trade signed.Trade) (payment.Answer, error) {
	r, err := a.call(ctx, "alipay.trade.query", trade)
	switch {
	case err != nil:
		return payment.Unknown, err
	case r.SubCode == notExist:
		return trade.Missing(r.at)
	case r.Code != succeeded:
		return payment.Unknown, r.said()
	}
	switch r.TradeStatus {
	case "TRADE_SUCCESS", "TRADE_FINISHED": // also after a refund of a part
		return payment.Paid, nil
	case "TRADE_CLOSED":
		return payment.Cancelled, nil
	case "WAIT_BUYER_PAY":
		return payment.Unpaid, nil
	}
	return payment.Unknown, fmt.Errorf("its status is %.40q, which this program does not know", r.TradeStatus)
}

const methodClose = "alipay.trade.close"

// Codes of responses.
const (
	succeeded = "10000"
	refused   = "40004" // SubCode says why
	notExist  = "ACQ.TRADE_NOT_EXIST"
)

// wrongOptions are codes by which Alipay's gateway refuses the app.
var wrongOptions = []string{"20001", "40001", "40002", "40003", "40006"}

// response is a response to either method, and an error of Alipay's gateway.
type response struct {
	Code        string `json:"code"`
	Msg         string `json:"msg"`
	SubCode     string `json:"sub_code"`
	SubMsg      string `json:"sub_msg"`
	OutTradeNo  string `json:"out_trade_no"`
	TradeStatus string `json:"trade_status"`

	at time.Time // when Alipay answered, by its clock; zero: it does not say
}

// said returns what Alipay said as an error.
func (r response) said() error {
	return fmt.Errorf("answered %s %s: %s %s", r.Code, r.Msg, r.SubCode, r.SubMsg)
}

// call calls a method for a trade. It returns an answer about this trade, which has Alipay's signature and the code
// succeeded or refused. All else is an error.
func (a *API) call(ctx context.Context, method string, trade signed.Trade) (response, error) {
	content, err := json.Marshal(map[string]string{"out_trade_no": trade.Number})
	if err != nil {
		return response{}, err
	}
	form := url.Values{
		"app_id": {a.o.AppID}, "method": {method}, "format": {"JSON"}, "charset": {"utf-8"}, "sign_type": {"RSA2"}, "version": {"1.0"},
		"timestamp": {time.Now().In(china).Format(time.DateTime)}, "biz_content": {string(content)},
	}
	maps.Copy(form, a.serials)
	signature, err := a.keys.Sign(toSign(form))
	if err != nil {
		return response{}, err
	}
	form.Set("sign", signature)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, strings.NewReader(form.Encode()))
	if err != nil {
		return response{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=utf-8")
	resp, body, err := signed.Do(a.client, request)
	if err != nil {
		return response{}, err
	}
	if resp.StatusCode != http.StatusOK { // of a proxy: Alipay itself always answers 200
		return response{}, payments.RetryLater(resp.Header, fmt.Errorf("answered HTTP %d", resp.StatusCode))
	}
	r, isSigned := a.parse(method, body)
	r.at = payments.TimeOf(resp.Header)
	switch said := r.said(); {
	case r.SubCode == "isv.invalid-parameter": // such as an out_trade_no that is too long
		return response{}, said
	case slices.Contains(wrongOptions, r.Code), r.Code == refused && r.SubCode == "ACQ.ACCESS_FORBIDDEN":
		return response{}, &payments.Unavailable{Err: fmt.Errorf("%w: are app id and private key right and of this environment (live or sandbox), "+
			"is the clock right, and may the app query and close trades?", said)}
	case r.Code != succeeded && r.Code != refused, r.SubCode == "ACQ.SYSTEM_ERROR": // such as 40005, too many calls
		return response{}, payments.RetryLater(resp.Header, said)
	case !isSigned: //mutant:alipay-signature-ignored
		return response{}, &payments.Unavailable{Err: fmt.Errorf("the response does not have Alipay's signature, and is not believed: "+
			"is Alipay's public key that of this app and environment? It says: %w", said)}
	case r.OutTradeNo != trade.Number && (r.Code == succeeded || r.OutTradeNo != ""):
		return response{}, &payments.Unavailable{Err: fmt.Errorf("asked about trade %s, and answered about %.64q", trade.Number, r.OutTradeNo)}
	case method == methodClose && r.TradeStatus != "": // the signature does not cover the method
		err := fmt.Errorf("asked to close trade %s, and answered as to a query, that its status is %.40q", trade.Number, r.TradeStatus)
		return response{}, &payments.Unavailable{Err: err}
	}
	return r, nil
}

// china is the zone of Alipay's timestamps.
var china = time.FixedZone("", 8*60*60)

// toSign returns the parameters in the form that is signed.
func toSign(form url.Values) string {
	var parts []string
	for key := range form {
		parts = append(parts, key+"="+form.Get(key))
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// parse returns the response in body, and whether it has Alipay's signature, which is over the bytes of its
// node. Errors of Alipay's gateway may be in another node, and are not always signed.
func (a *API) parse(method string, body []byte) (r response, isSigned bool) {
	var nodes map[string]json.RawMessage
	if json.Unmarshal(body, &nodes) != nil {
		r.Msg = fmt.Sprintf("no JSON, but %.80q", body)
		return r, false
	}
	node, ok := nodes[strings.ReplaceAll(method, ".", "_")+"_response"]
	if !ok {
		node = nodes["error_response"]
	}
	var signature string
	if json.Unmarshal(node, &r) != nil || json.Unmarshal(nodes["sign"], &signature) != nil {
		return r, false
	}
	// A slash may be sent as \/ and signed as /.
	return r, a.keys.Verify(string(node), signature) || a.keys.Verify(strings.ReplaceAll(string(node), `\/`, "/"), signature)
}
