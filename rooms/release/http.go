package release

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/httpcall"
)

// HTTP is a Releaser that calls a service over HTTP. Each release is a POST to URL:
//
//	Idempotency-Key: 6:ord-17/3:ink/close
//
//	{"order_id":"ord-17","sku":"ink","quantity":2,"idempotency_key":"6:ord-17/3:ink/close","event_id":"order.closed/ord-17"}
//
// The status of the response is the result: 2xx means released, 409 released before.
// 408, 425, 429, 502, 503, 504 and no response mean that the service is unavailable.
// Any other 4xx is a final refusal. Any other status is a failure of this release that
// is retried. In the Idempotency-Key header, bytes that are not printable ASCII, and
// the percent sign, are percent-encoded.
type HTTP struct {
	URL   string
	Token string // if set: Authorization: Bearer
	// Client makes the calls. Default: http.DefaultClient, which follows redirects. A
	// redirect turns the POST into a GET, so set one as NewHTTP does.
	Client *http.Client
}

// NewHTTP returns a Releaser that posts to url, with a bearer token unless token is
// "". It keeps up to DefaultParallel idle connections. With a larger Options.Parallel,
// set a Client whose transport keeps more. It does not follow redirects, which would
// turn the POST into a GET.
func NewHTTP(url, token string) *HTTP {
	transport := httpcall.Transport()
	transport.MaxIdleConnsPerHost = DefaultParallel
	return &HTTP{url, token, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// body is the JSON body of a request.
type body struct {
	OrderID  string `json:"order_id"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Key      string `json:"idempotency_key"`
	EventID  string `json:"event_id"`
}

// Release implements Releaser.
func (h *HTTP) Release(ctx context.Context, r Request) error {
	data, err := json.Marshal(body(r))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("the URL of the stock service is invalid: %w", withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", headerSafe(r.Key))
	if h.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	client := h.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, withoutURL(err))
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))                      // read so that the connection can be reused
	return statusError(res.StatusCode, h.withoutSecrets(req.URL, string(said))) //mutant:token-logged
}

// minSecret is the length of the shortest path, or value in a query, that may be a secret.
const minSecret = 8

// withoutSecrets removes from an answer what it repeats of the request's secrets: errors are logged,
// and stored in dead letters.
func (h *HTTP) withoutSecrets(u *url.URL, said string) string {
	secrets := []string{h.Token, u.RawQuery}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)), password)
	}
	parts := []string{u.EscapedPath(), u.Path}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	secrets = append(secrets, slices.DeleteFunc(parts, func(s string) bool { return len(s) < minSecret })...)
	for _, secret := range secrets {
		if secret != "" {
			said = strings.ReplaceAll(said, secret, "…")
		}
	}
	return said
}

// statusError converts a status to an error.
func statusError(status int, said string) error {
	text := fmt.Sprintf("the stock service answers %d %s", status, http.StatusText(status))
	if words := strings.Join(strings.Fields(said), " "); words != "" {
		text += ": " + strings.ToValidUTF8(words[:min(len(words), 200)], "")
	}
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusConflict:
		return ErrAlready
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s", ErrUnavailable, text)
	case status >= 400 && status < 500:
		return fmt.Errorf("%w: %s", ErrRefused, text)
	}
	return errors.New(text)
}

// withoutURL removes the URL from an error, because it may contain a secret.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// headerSafe encodes s for use in a header. Different strings have different
// encodings.
func headerSafe(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
