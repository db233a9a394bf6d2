package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestNew_RejectsInvalidSASL(t *testing.T) {
	for _, row := range []struct {
		sasl SASL
		want string
	}{
		{SASL{Mechanism: "GSSAPI", User: "u", Password: "hunter2"}, `kafka: unknown SASL mechanism "GSSAPI": use one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER, AWS_MSK_IAM`},
		{SASL{Mechanism: Plain, User: "", Password: "hunter2"}, "kafka: SASL PLAIN needs a user"},
		{SASL{Mechanism: ScramSHA512, User: "u", Password: ""}, `kafka: SASL SCRAM-SHA-512 needs the password of user "u"`},
		{SASL{Mechanism: OAuthBearer, User: "u"}, "kafka: SASL OAUTHBEARER needs a source of tokens"},
		{SASL{Mechanism: Plain, User: "u", Password: "hunter2", Token: noToken}, "kafka: SASL PLAIN sends no token and no extensions: only OAUTHBEARER does"},
		{SASL{Mechanism: OAuthBearer, Token: noToken, Extensions: map[string]string{"auth": "hunter2"}},
			`kafka: SASL extension "auth": a name has letters only and is not auth, and a value has printable ASCII letters`},
		{SASL{Mechanism: MSKIAM, Password: "hunter2"}, "kafka: SASL AWS_MSK_IAM has no user and no password: the environment names the credentials of AWS"},
		{SASL{Mechanism: ScramSHA256, User: "u", Password: "hunter2\a"}, "kafka: user or password have characters that SASL does not allow (RFC 4013)"},
	} {
		if _, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &row.sasl}}); err == nil || err.Error() != row.want {
			t.Errorf("got  %v\nwant %s", err, row.want)
		}
	}
}

func noToken(context.Context) (string, time.Time, error) { return "", time.Time{}, nil }

func TestNew_WarnsAboutSASLWithoutTLS(t *testing.T) {
	for _, row := range []struct {
		security Security
		want     string
	}{
		{Security{}, ""},
		{Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: Plain, User: "u", Password: "hunter2"}}, ""},
		{Security{SASL: &SASL{Mechanism: Plain, User: "u", Password: "hunter2"}}, "sends the password in clear text"},
		{Security{SASL: &SASL{Mechanism: ScramSHA256, User: "u", Password: "hunter2"}}, "SASL without TLS"},
		{Security{SASL: &SASL{Mechanism: OAuthBearer, Token: noToken}}, "sends the token in clear text"},
	} {
		var log bytes.Buffer
		if _, err := New(Options{Brokers: []string{"a:1"}, Security: row.security, Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), row.want) || row.want == "" && log.Len() > 0 || strings.Contains(log.String(), "hunter2") {
			t.Errorf("%v logs %q, want %q in it", row.security, log.String(), row.want)
		}
	}
}

// TestSecurity_AppliesToEveryConnection: requests and group memberships open their
// connections through the connector, which has the security.
func TestSecurity_AppliesToEveryConnection(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{TLS: &tls.Config{}, SASL: &SASL{Mechanism: ScramSHA512, User: "u", Password: "hunter2"}}})
	if err != nil {
		t.Fatal(err)
	}
	if c.transport.brokers.tls == nil || c.transport.brokers.mechanism == nil || c.transport.brokers.mechanism.Name() != ScramSHA512 {
		t.Error("connections are not secured")
	}
	if c.client.Transport != c.transport {
		t.Error("the client library opens connections itself")
	}
}

// TestSecurity_NoVerbShowsTheToken prints a client that keeps a token.
func TestSecurity_NoVerbShowsTheToken(t *testing.T) {
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: OAuthBearer, Token: func(context.Context) (string, time.Time, error) {
		return "hunter2", time.Now().Add(time.Hour), nil
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, message, err := c.transport.brokers.mechanism.Start(t.Context()); err != nil || !strings.Contains(string(message), "hunter2") {
		t.Fatalf("the login sends %q, %v", message, err)
	}
	for _, v := range []any{c, c.transport, c.transport.brokers, c.transport.brokers.mechanism} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "hunter2") {
				t.Errorf("%s of %T shows the token: %s", verb, v, text)
			}
		}
	}
}

func TestSecurity_NoVerbShowsThePassword(t *testing.T) {
	for _, mechanism := range []string{ScramSHA512, ScramSHA256, Plain} {
		o := Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{Mechanism: mechanism, User: "shown", Password: "hunter2"}}}
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []any{o, &o, o.Security, &o.Security, o.Security.SASL, *o.Security.SASL, c, c.transport, c.transport.brokers} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				text := fmt.Sprintf(verb, v)
				if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
					t.Errorf("%s of %T shows the password: %s", verb, v, text)
				}
			}
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "security", o.Security, "sasl", o.Security.SASL)
		marshaled, err := json.Marshal(o.Security)
		if err != nil {
			t.Fatal(err)
		}
		if text := log.String() + string(marshaled); strings.Contains(text, "hunter2") || !strings.Contains(text, "shown") {
			t.Errorf("logged as %s", text)
		}
	}
}
