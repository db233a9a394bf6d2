package signed

import (
	"errors"
	"io"
	"net/http"

	"github.com/orderclose/orderclose/payments"
)

const maxBody = 256 << 10 // bytes of a response; a trade with all its fields has some 2 kB

// Client returns the client of a provider. It follows no redirects: the signature of a request is for its path, and the host of
// another address must not get the key. Reading more than maxBody of a response is an error.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = http.DefaultTransport
	}
	return &http.Client{Timeout: payments.CallLimit, Transport: limited{transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// limited limits the bodies of responses.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	return resp, err
}

// Do sends a request, and returns the response with its body. After an error, which is *payments.Unavailable, nobody
// knows whether the provider has done it.
func Do(client *http.Client, r *http.Request) (*http.Response, []byte, error) {
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, &payments.Unavailable{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		err = errors.New("the response is too long")
	}
	if err != nil {
		return nil, nil, &payments.Unavailable{Err: err}
	}
	return resp, body, nil
}
