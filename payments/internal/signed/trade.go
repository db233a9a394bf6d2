// Package signed has what the clients of Alipay and WeChat Pay share: the references of trades (trade.go), RSA keys
// and signatures (key.go), and the limits of a call (call.go).
//
// Both clients are written on the standard library, and link no client library of the provider: each has
// two calls, a query and a close.
package signed

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
)

// expiryMargin is how long after its expiry, by the clock of the provider, a page is taken for open: the clocks of a provider's
// servers may differ. It is shorter than the minute after which the closer asks again about an order that is
// Unknown: so an order whose page expires when it is due is closed by the second question.
const expiryMargin = 30 * time.Second

// Trade is a payment, under the number that the shop has given it.
type Trade struct {
	Number string // out_trade_no

	expires time.Time // when the payment page expires; zero: the reference does not say
}

// number is what both providers allow in an out_trade_no, and the length of the longer one.
var number = regexp.MustCompile(`^[0-9A-Za-z_|*@-]{1,64}$`)

// ParseTrade returns the trade of a reference PREFIX:NUMBER or PREFIX:NUMBER:EXPIRES. EXPIRES is in unix seconds.
func ParseTrade(prefix, reference string) (Trade, error) {
	text, ok := strings.CutPrefix(reference, prefix+":")
	text, expires, hasExpiry := strings.Cut(text, ":")
	t := Trade{Number: text}
	if hasExpiry {
		seconds, err := strconv.ParseInt(expires, 10, 64)
		ok = ok && err == nil && seconds > 0
		t.expires = time.Unix(seconds, 0)
	}
	if !ok || !number.MatchString(t.Number) {
		return Trade{}, fmt.Errorf("the reference must be %s:NUMBER:EXPIRES, with the out_trade_no and the time in unix seconds at which "+
			"the payment page expires, such as %[1]s:ORDER17A:1767225600", prefix)
	}
	return t, nil
}

// MayBeOpened reports whether the customer may still open the payment page. A provider does not know the trade of a
// page that nobody has opened. now is the time of its response by its own clock; zero: unknown. Without an expiry in the
// reference, or without now, MayBeOpened is always true.
func (t Trade) MayBeOpened(now time.Time) bool {
	return t.expires.IsZero() || now.Before(t.expires.Add(expiryMargin))
}

// Missing returns the answer for a trade that the provider does not know: Cancelled after the page has
// expired, and Unknown before that. now is that of MayBeOpened.
func (t Trade) Missing(now time.Time) (payment.Answer, error) {
	switch {
	case t.expires.IsZero():
		return payment.Unknown, errors.New("the provider does not know it: nobody has opened the page, or it is of another account; " +
			"add the time at which the page expires to the reference, so that the order can be closed after it")
	case now.IsZero():
		return payment.Unknown, errors.New("the provider does not know it, and its response has no header Date: whether the page has expired is unknown")
	case t.MayBeOpened(now): //mutant:missing-trade-ended
		return payment.Unknown, nil //mutant:missing-trade-ended
	}
	return payment.Cancelled, nil
}

// Asked returns the answer to a question that has changed nothing.
func Asked(answer payment.Answer, err error) (payment.Answer, error) {
	if answer == payment.Cancelled {
		answer = payment.Unpaid
	}
	return answer, err
}
