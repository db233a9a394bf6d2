package signed

import (
	"errors"
	"io"
	"net/http"

	"github.com/orderclose/orderclose/payments"
)

const maxBody = 256 << 10 // bytes of a response; a trade with all its fields has some 2 kB

// Client returns the client of a provider. It follows no redirects: the signature of a request is for its path.
func Client(transport http.RoundTripper) *http.Client {
	return &http.Client{Timeout: payments.CallLimit, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Do sends a request, and returns the response with its body. After an error, which is *payments.Unavailable, nobody
// knows whether the provider has done it.
func Do(client *http.Client, r *http.Request) (*http.Response, []byte, error) {
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, &payments.Unavailable{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the response is too long")
	}
	if err != nil {
		return nil, nil, &payments.Unavailable{Err: err}
	}
	return resp, body, nil
}
