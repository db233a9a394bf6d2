package httpcall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/signature"
)

// ErrReply means that a response with status 2xx cannot be decoded, or is too large.
var ErrReply = errors.New("the answer cannot be decoded")

// StatusError is a response with another status than 2xx. It wraps
// orderclose.ErrUnavailable if the status says nothing about the request: the service
// has moved, is down, or wants another secret.
type StatusError struct {
	Status int
	Detail string        // start of the body, or the target of a redirect
	After  time.Duration // duration from Retry-After; 0 without the header
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("it answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += fmt.Sprintf(" (%s)", e.Detail)
	}
	switch {
	case e.Status < 400:
		text += ": redirects are not followed, set the url to where it leads"
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		text += ": is the secret the same on both sides, and are both clocks right?"
	case e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed:
		text += ": is the url right?"
	}
	return text
}

// RetryAfter returns for how long the service wants no calls, or 0 if it did not say.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Unwrap returns orderclose.ErrUnavailable if the request is not at fault, and nil
// otherwise.
func (e *StatusError) Unwrap() error {
	switch {
	case e.Status < 400, e.Status > 500:
		return orderclose.ErrUnavailable
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusGone, http.StatusMisdirectedRequest,
		http.StatusTooEarly, http.StatusUpgradeRequired, http.StatusTooManyRequests:
		return orderclose.ErrUnavailable
	}
	return nil
}

// Client sends signed requests to one URL. Create it with NewClient.
type Client struct {
	url  string
	keys signature.Keys
	http http.Client
}

// NewClient returns a Client, or an error if the URL or a secret is invalid. Without a transport it makes one.
func NewClient(url string, secrets []string, through http.RoundTripper) (*Client, error) {
	keys, err := signature.Parse(secrets)
	if err = cmp.Or(signature.CheckURL(url), err); err != nil {
		return nil, err
	}
	if through == nil {
		through = Transport()
	}
	return &Client{url, keys, http.Client{
		Transport:     through,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Transport returns a transport that uses proxies from the environment and notices dead HTTP/2
// connections. It sends a ping on a connection that has been silent for 5 s, and closes the connection
// if no answer comes within 2 s. Without pings a dead connection stays in use: a call that times out
// does not close it, and the kernel closes it only after a quarter of an hour.
func Transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		TLSHandshakeTimeout:    3 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16, // about as many as the workers of a few closers use at the same time
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 2 * time.Second},
		DisableCompression:     true, // replies are small, and a small compressed reply may decompress to a huge one
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends in as signed JSON and decodes the response, of at most maxReply bytes, into out. The error is a *StatusError
// for another status than 2xx. It wraps ErrReply if the response cannot be decoded or is too large, and
// orderclose.ErrUnavailable if the response is missing or incomplete. It quotes neither the URL nor the body of the request,
// but may quote the beginning of the response. A repeated request has another webhook-id, because its answer may differ.
func (c *Client) Post(ctx context.Context, in, out any, maxReply int64) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	resp, err := c.Send(ctx, "msg_"+rand.Text(), header, body)
	if err != nil {
		return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.statusError(resp)
	}
	return read(resp.Body, out, maxReply)
}

// Send sends a body with a header, which it completes and signs with this webhook-id, which has no dot. It does not follow
// redirects. The error does not quote the URL.
func (c *Client) Send(ctx context.Context, id string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request cannot be created: is the url right?")
	}
	req.Header = header
	header.Set("User-Agent", "orderclose")
	c.keys.Sign(header, id, time.Now(), body)
	resp, err := c.http.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL, which may hold secrets and must not be logged
	}
	return resp, err
}

// read decodes a response of at most limit bytes.
func read(body io.Reader, out any, limit int64) error {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: the answer is incomplete: %w", orderclose.ErrUnavailable, err)
	case int64(len(data)) > limit:
		return fmt.Errorf("%w: it has more than %d bytes", ErrReply, limit)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: %w: it begins %q", ErrReply, err, Cut(string(data), 80))
	}
	return nil
}

// maxDetail limits the stored body of an error response, in bytes.
const maxDetail = 300

func (c *Client) statusError(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode, After: RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	if e.Detail = resp.Header.Get("Location"); e.Detail == "" {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxDetail)) // without the body the status is enough
		e.Detail = string(data)
	}
	e.Detail = strings.Join(strings.Fields(strings.ToValidUTF8(Cut(e.Detail, maxDetail), "")), " ")
	return e
}

// RetryAfter parses a Retry-After header: seconds, or a date. A value that is neither is 0. A day is the most.
func RetryAfter(value string, now time.Time) time.Duration {
	const limit = 24 * time.Hour
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, limit)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), limit)
	}
	return 0
}

// Cut shortens s for messages. If s has more than n bytes, Cut returns the first n bytes,
// without invalid UTF-8, and appends an ellipsis.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
