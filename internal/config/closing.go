package config

import (
	"fmt"
	"time"
)

// ClosingKind says how orders are closed.
type ClosingKind string

// The kinds of closing.
const (
	KindSQL  ClosingKind = "sql"  // a transaction in the database
	KindHTTP ClosingKind = "http" // a request to the user's service
)

// Service is a service of the user.
type Service struct {
	URL   string `yaml:"url" is:"url"`            // http or https; "": there is none
	Batch int    `yaml:"batch" min:"1" max:"999"` // orders per request
}

// PaymentService is the service that knows whether an order was paid.
type PaymentService struct {
	URL    string `yaml:"url" is:"url"`            // http or https; "": there is none
	Batch  int    `yaml:"batch" min:"1" max:"999"` // orders per question
	Cancel bool   `yaml:"cancel"`                  // the service cancels the payments of an order before the order is closed
	// Recheck holds how long after the close of an order the service is asked again, ascending, each from
	// minRecheck to maxRecheck; empty: it is not.
	Recheck     []time.Duration `yaml:"recheck" example:"[10m, 1h, 24h]"`
	RecheckRate int             `yaml:"recheck_rate" min:"1" max:"1000000"` // orders per second that it is asked again
}

const (
	// minRecheck leaves a close the time to commit, of which a call may take two minutes: a recheck reads by the time
	// of the close.
	minRecheck = 5 * time.Minute
	maxRecheck = 30 * 24 * time.Hour
)

func (r *reader) checkClosing(s *settings) {
	const url, payment = "closer.http.url", "closer.payment.url"
	c, orders := s.Closer, s.Orders
	if c.AsksPayment() && orders != nil {
		if _, ok := orders.Status.Pay(); !ok {
			r.refuse(payment, r.node("orders.status", payment),
				"a payment provider is set, but orders.status.paid is empty",
				"list the status of a paid order first in orders.status.paid")
		}
	}
	// With KindHTTP the service holds the orders: only the service can ask in time.
	if c.Kind == KindHTTP && c.AsksPayment() {
		r.refuse(payment, r.at[payment], "with closer.http.url this process does not ask the payment provider",
			"let the service ask, and answer payment_pending while it does not know; then remove this")
	}
	if c.Payment.Cancel && !c.AsksPayment() {
		r.refuse(payment, r.at["closer.payment.cancel"], "closer.payment.cancel is true, but there is no url",
			"set it to the URL of the service that cancels payments")
	}
	for i, d := range c.Payment.Recheck {
		at := fmt.Sprintf("closer.payment.recheck[%d]", i)
		if r.at[at] != nil && (d < minRecheck || d > maxRecheck || i > 0 && d <= c.Payment.Recheck[i-1]) {
			r.refuse(at, r.at[at], FormatDuration(d)+" is out of range, or not longer than the one before it",
				fmt.Sprintf("write ascending durations from %s to %s", FormatDuration(minRecheck), FormatDuration(maxRecheck)))
		}
	}
	if !Private(c.HTTP.URL) {
		r.refuseUnless(s, WithoutTLS, url, "its answers are not signed, and without TLS anybody on the way can change them: an open order would count as closed",
			"write https://")
	}
	if !Private(c.Payment.URL) {
		r.refuseUnless(s, WithoutTLS, payment,
			"its answers are not signed, and without TLS anybody on the way can change them: a paid order would be closed", "write https://")
	}
}

// AsksPayment reports whether a payment provider is asked before an order is closed.
func (c Closer) AsksPayment() bool { return c.Payment.URL != "" }
