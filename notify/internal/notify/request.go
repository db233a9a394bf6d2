package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/signature"
)

// errTemporary means that a retry may help.
var errTemporary = errors.New("temporary")

// temporary marks err as temporary without a change of its text.
func temporary(err error) error { return &temporaryError{err} }

type temporaryError struct{ error }

func (e *temporaryError) Unwrap() []error { return []error{e.error, errTemporary} }

const (
	maxAnswer = 64 << 10 // bytes of an answer that are read
	maxQuoted = 300      // bytes of an answer that an error quotes
)

// client follows no redirect: a redirect would send the message, and perhaps a secret, to another
// address.
var client = &http.Client{
	Transport:     httpcall.Transport(),
	Timeout:       sendTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request has the address and the secret of a receiver.
type request struct{ url, urlFile, secretFile string }

// read returns the address and the secret, from their files.
func (r request) read() (target *url.URL, secret string, err error) {
	raw := r.url
	if r.urlFile != "" {
		if raw, err = readSecret(r.urlFile); err != nil {
			return nil, "", fmt.Errorf("url_file: %w", err)
		}
	}
	if err = signature.CheckURL(raw); err != nil {
		return nil, "", fmt.Errorf("the URL: %w", err)
	}
	if r.secretFile != "" {
		if secret, err = readSecret(r.secretFile); err != nil {
			return nil, "", fmt.Errorf("secret_file: %w", err)
		}
	}
	target, err = url.Parse(raw)
	return target, secret, err
}

func (r request) check() error {
	_, _, err := r.read()
	return err
}

// do sends a request and returns the body of an answer with status 2xx. secrets are texts that an
// error must not quote.
func do(ctx context.Context, method string, target *url.URL, header http.Header, body []byte, secrets ...string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request cannot be created: is the URL right?")
	}
	req.Header = header
	req.Header.Set("User-Agent", "orderclose")
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may hold a token
		}
		return nil, temporary(fmt.Errorf("no answer: %w", err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, temporary(fmt.Errorf("the answer is incomplete: %w", err))
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return answer, nil
	}
	err = fmt.Errorf("it answered %d %s: %s", resp.StatusCode, http.StatusText(resp.StatusCode), quote(answer, target, secrets...))
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return nil, temporary(err)
	}
	return nil, err
}

// quote returns the beginning of an answer, for errors, without the secrets and the tokens of the
// URL. A provider may repeat the request.
func quote(answer []byte, target *url.URL, secrets ...string) string {
	text := string(answer)
	secrets = append(secrets, target.String(), target.RawQuery)
	for _, values := range target.Query() {
		secrets = append(secrets, values...)
	}
	for _, s := range secrets {
		if len(s) >= 6 { // a shorter one would remove words
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(httpcall.Cut(text, maxQuoted), "")), " ")
}
