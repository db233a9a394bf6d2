package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"text/template"
)

// provider sends a request that templates describe.
type provider struct {
	method   string
	headers  map[string]*template.Template
	body     *template.Template
	accepted *regexp.Regexp
}

func newProvider(c *HTTP) (*provider, error) {
	p := &provider{method: c.Method, headers: map[string]*template.Template{}, accepted: c.accepted}
	sample := Message{Alerts: []Alert{{}}}
	var errs []error
	for name, t := range c.Headers {
		value, err := parse(t, "", sample)
		p.headers[name] = value
		errs = append(errs, err)
	}
	body, err := parse(c.Body, "", sample)
	p.body = body
	return p, errors.Join(append(errs, err)...)
}

func (p *provider) deliver(ctx context.Context, m *Message, target *url.URL) error {
	header := http.Header{}
	for name, t := range p.headers {
		var value strings.Builder
		if err := t.Execute(&value, *m); err != nil {
			return fmt.Errorf("the header %s: %w", name, err)
		}
		header.Set(name, value.String())
	}
	var body strings.Builder
	if err := p.body.Execute(&body, *m); err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	answer, err := do(ctx, p.method, target, header, []byte(body.String()), m.Secret)
	if err != nil {
		return fmt.Errorf("the provider: %w", err)
	}
	if p.accepted != nil && !p.accepted.Match(answer) {
		return temporary(fmt.Errorf("the provider did not accept it: %s", quote(answer, target, m.Secret)))
	}
	return nil
}
