package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"orderclose/internal/signed"
	"orderclose/internal/tables"
)

// ClosingKind is what closing an order means.
type ClosingKind string

// The kinds of closing.
const (
	KindSQL  ClosingKind = "sql"  // a transaction in the database
	KindHTTP ClosingKind = "http" // a request to the user's service
)

// HTTPClosing is the service that closes orders.
type HTTPClosing struct {
	URL   string // http or https; "" if closing is of another kind
	Batch int    // orders per request, 1 to MaxBatch
}

// Payment is the service that says whether an order was paid.
type Payment struct {
	URL   string // http or https; "": nobody is asked
	Batch int    // orders per question, 1 to MaxBatch
}

func (h *HTTPClosing) grammar() value {
	return section(fields{"url": address(&h.URL), "batch": integer(&h.Batch, 1, MaxBatch)})
}

func (p *Payment) grammar() value {
	return section(fields{"url": address(&p.URL), "batch": integer(&p.Batch, 1, MaxBatch)})
}

// address reads the URL of a service.
func address(to *string) value {
	return func(r *reader, path string, n *yaml.Node) {
		var raw string
		if text(&raw)(r, path, n); r.bad[path] {
			return
		}
		if err := signed.CheckURL(raw); err != nil {
			r.refuse(path, n, err.Error(), "write it such as https://shop.example/orderclose/close")
			return
		}
		*to = raw
	}
}

func (r *reader) checkClosing(c Closer, orders *tables.Mapping) {
	const url = "closer.http.url"
	if c.Kind == KindHTTP && c.HTTP.URL == "" && !r.anyBad("closer.http") {
		r.refuse(url, r.node("closer.http", "closer.kind"), "orders are closed over HTTP, and there is no url", "set it to where the service is")
	}
	if c.Kind != KindHTTP && c.HTTP.URL != "" && !r.bad["closer.kind"] {
		r.refuse(url, r.at[url], "it is set and not used", "set closer.kind to http, or remove it")
	}
	if c.Payment.URL != "" && orders != nil && !r.anyBad("orders") {
		if _, ok := orders.Status.Pay(); !ok {
			r.refuse("closer.payment.url", r.node("orders.status", "closer.payment.url"),
				"orders.status does not say what paid is, and the payment provider may say that an order was",
				"list it first in orders.status.paid")
		}
	}
	// The service that closes has the orders: only it can ask in time.
	if c.Kind == KindHTTP && c.Payment.URL != "" {
		const payment = "closer.payment.url"
		r.refuse(payment, r.at[payment], "with closer.kind http nobody asks the payment provider here",
			"let the service ask, and answer payment_pending while it does not know; then remove this")
	}
}

// The variables with secrets of the user's services. Each may be given as a file
// instead, as EnvDSN may, and have several secrets, separated by commas or on
// lines of their own, while one is being changed: requests are signed with all.
const (
	EnvHTTPSecret    = "ORDERCLOSE_HTTP_SECRET"
	EnvPaymentSecret = "ORDERCLOSE_PAYMENT_SECRET"
)

// Secrets are what requests to the user's services are signed with.
type Secrets struct {
	HTTP    []string // to the service that closes
	Payment []string // to the one that knows of payments
}

// String hides them.
func (Secrets) String() string { return "secrets" }

// GoString hides them.
func (Secrets) GoString() string { return "secrets" }

func secretsOf(lookup func(string) (string, bool), name string) ([]string, error) {
	raw, err := variable(lookup, name)
	if err != nil || raw == "" {
		return nil, err
	}
	secrets := strings.FieldsFunc(raw, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' })
	for i, s := range secrets {
		secrets[i] = strings.TrimSpace(s)
	}
	if err := signed.CheckSecrets(secrets); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return secrets, nil
}

// Needs are the variables that closing takes.
func (c Closer) Needs() []string {
	if c.Kind == KindHTTP {
		return []string{EnvHTTPSecret}
	}
	if c.Payment.URL != "" {
		return []string{EnvDSN, EnvPaymentSecret}
	}
	return []string{EnvDSN}
}
