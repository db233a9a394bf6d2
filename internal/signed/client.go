package signed

import (
	"bytes"
	"context"
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

	"orderclose"
)

// ErrReply marks an answer that says yes and cannot be read.
var ErrReply = errors.New("the answer cannot be read")

// StatusError is an answer other than 2xx. It is orderclose.ErrUnavailable if it
// says nothing about what was sent: the service is elsewhere, away, or wants
// another secret.
type StatusError struct {
	Status int
	Detail string        // the beginning of the body, or where a redirect leads
	After  time.Duration // how long the service wants to be left alone; 0: not said
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

// RetryAfter is how long the service wants to be left alone; 0: it did not say.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Unwrap returns orderclose.ErrUnavailable if what was sent is not to blame.
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

// ClientOptions for a Client. URL and Secrets must be set.
type ClientOptions struct {
	URL       string            // http or https, without user and password
	Secrets   []string          // see CheckSecrets
	Transport http.RoundTripper // default: a new one, that knows proxies from the environment
	Now       func() time.Time  // for timestamps; default time.Now
}

// Client sends signed requests to one URL. Make it with NewClient.
type Client struct {
	o    ClientOptions
	http http.Client
}

// NewClient returns a Client, or says what is wrong with the options.
func NewClient(o ClientOptions) (*Client, error) {
	if err := CheckURL(o.URL); err != nil {
		return nil, err
	}
	if err := CheckSecrets(o.Secrets); err != nil {
		return nil, err
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{o, http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CheckURL reports whether requests can be sent to a URL.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // its text quotes the URL, secrets and all
		return errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return errors.New("it is not http://host/path or https://host/path")
	case u.User != nil:
		return errors.New("it holds a user or password; requests are signed instead")
	case u.Fragment != "":
		return errors.New("it has a fragment, which no server gets to see")
	}
	return nil
}

// connections is how many idle connections are kept: as many as a few closers'
// workers use at once.
const connections = 16

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		TLSHandshakeTimeout:   3 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   connections,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // replies are small, and a small one may unfold into a large one
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends in as JSON, signed, and reads the answer, of at most maxReply bytes,
// into out. The error is a *StatusError; or ErrReply; or orderclose.ErrUnavailable
// if there was no answer, or not the whole of it. It says nothing of what was sent.
func (c *Client) Post(ctx context.Context, in, out any, maxReply int64) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("writing the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the request cannot be made: is the url right?")
	}
	timestamp, signature := Sign(c.o.Secrets, c.o.Now(), body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "orderclose")
	req.Header.Set(HeaderTimestamp, timestamp)
	req.Header.Set(HeaderSignature, signature)
	resp, err := c.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which the caller knows and a log need not
		}
		return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refused(resp)
	}
	return read(resp.Body, out, maxReply)
}

// read reads a reply.
func read(body io.Reader, out any, most int64) error {
	data, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: the answer broke off: %w", orderclose.ErrUnavailable, err)
	case int64(len(data)) > most:
		return fmt.Errorf("%w: it has more than %d bytes", ErrReply, most)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: %w: it begins %q", ErrReply, err, Cut(string(data), 80))
	}
	return nil
}

// maxDetail is how much of a refusal's body is kept.
const maxDetail = 300

func (c *Client) refused(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode, After: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	if e.Detail = resp.Header.Get("Location"); e.Detail == "" {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxDetail)) // the status alone says enough
		e.Detail = string(data)
	}
	e.Detail = strings.Join(strings.Fields(strings.ToValidUTF8(Cut(e.Detail, maxDetail), "")), " ")
	return e
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}

// Cut returns at most n bytes of s, for messages.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
