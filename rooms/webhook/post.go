package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
)

const (
	// maxAnswer is how many bytes of an answer are read, and maxHeaders those of its headers. Only the status and Retry-After are used.
	maxAnswer, maxHeaders = 4 << 10, 64 << 10
	// maxHold bounds Retry-After.
	maxHold = time.Hour
)

var errNoEvent = errors.New("the row is no CloudEvent in JSON with specversion 1.0, id, source and type: fix the program that writes such rows")

// endpoint is the receiver.
type endpoint struct {
	url     string
	secrets [][]byte
	http    http.Client
}

func newEndpoint(to Settings, secrets [][]byte, through http.RoundTripper) *endpoint {
	if through == nil {
		t := httpcall.Transport()
		t.MaxResponseHeaderBytes = maxHeaders
		through = t
	}
	notFollowed := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &endpoint{to.URL, secrets, http.Client{Transport: through, CheckRedirect: notFollowed}}
}

// post sends an event once.
func (p *endpoint) post(ctx context.Context, e event) outcome {
	o := outcome{event: e}
	id, err := messageID(e.body)
	if err != nil {
		o.err, o.unsent = err, true
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(e.body))
	if err != nil {
		o.err = errors.New("the request cannot be created: is the url right?")
		return o
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": orderclose.EventContentType, "User-Agent": "orderclose",
		"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": sign(p.secrets, id, timestamp, e.body),
	} {
		req.Header.Set(name, value)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may hold secrets
		}
		o.err = err
		return o
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		o.refused(resp)
	}
	return o
}

// refused says what another status than 2xx means. The text of the answer is not kept, because it may repeat the url.
func (o *outcome) refused(resp *http.Response) {
	o.err = &httpcall.StatusError{Status: resp.StatusCode}
	o.wait = min(httpcall.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), maxHold)
	switch resp.StatusCode {
	case http.StatusGone:
		o.hold = longestPause
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		o.hold = o.wait //mutant:webhook-retry-after
	}
}

// text returns the error for the table.
func (o outcome) text() string {
	if o.err == nil {
		return ""
	}
	return httpcall.Cut(strings.ToValidUTF8(o.err.Error(), ""), 400)
}

// messageID returns the webhook-id of a CloudEvent, the same for each attempt and each duplicate. It is a hash: an id may have a dot, which
// separates the parts of what is signed, and letters that no header has.
func messageID(body []byte) (string, error) {
	var e struct{ SpecVersion, ID, Source, Type string }
	if err := json.Unmarshal(body, &e); err != nil || e.SpecVersion != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" {
		return "", errNoEvent
	}
	sum := sha256.Sum256([]byte(e.Source + "\n" + e.ID)) //mutant:webhook-id-changes
	return "msg_" + hex.EncodeToString(sum[:16]), nil
}

// sign returns a signature by each secret, separated by spaces: while a secret is replaced, there are two.
func sign(secrets [][]byte, id, timestamp string, body []byte) string {
	var all []string
	for _, secret := range secrets {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(id + "." + timestamp + "."))
		h.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// secretsOf reads secrets as Standard Webhooks write them, separated by commas, spaces or line breaks. The error shows none.
func secretsOf(raw string) (secrets [][]byte, err error) {
	for i, one := range strings.FieldsFunc(raw, func(r rune) bool { return strings.ContainsRune(", \r\n", r) }) {
		encoded, is := strings.CutPrefix(one, "whsec_")
		secret, wrong := base64.StdEncoding.DecodeString(encoded)
		if !is || wrong != nil || len(secret) < 24 || len(secret) > 64 {
			return nil, fmt.Errorf("%s: secret %d is not whsec_ and 24 to 64 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)", EnvSecret, i+1)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		err = fmt.Errorf("%s is not set", EnvSecret)
	}
	return secrets, err
}
