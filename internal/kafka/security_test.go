package kafka

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestNew_RejectsInvalidSASL(t *testing.T) {
	for _, row := range []struct {
		sasl SASL
		want string
	}{
		{SASL{"GSSAPI", "u", "hunter2"}, `kafka: unknown SASL mechanism "GSSAPI": use one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN`},
		{SASL{Plain, "", "hunter2"}, "kafka: SASL PLAIN needs a user"},
		{SASL{ScramSHA512, "u", ""}, `kafka: SASL SCRAM-SHA-512 needs the password of user "u"`},
		{SASL{ScramSHA256, "u", "hunter2\a"}, "kafka: user or password have characters that SASL does not allow (RFC 4013)"},
	} {
		if _, err := New(Options{Brokers: []string{"a:1"}, Security: Security{SASL: &row.sasl}}); err == nil || err.Error() != row.want {
			t.Errorf("got  %v\nwant %s", err, row.want)
		}
	}
}

func TestNew_WarnsAboutSASLWithoutTLS(t *testing.T) {
	for _, row := range []struct {
		security Security
		want     string
	}{
		{Security{}, ""},
		{Security{TLS: &tls.Config{}, SASL: &SASL{Plain, "u", "hunter2"}}, ""},
		{Security{SASL: &SASL{Plain, "u", "hunter2"}}, "sends the password in clear text"},
		{Security{SASL: &SASL{ScramSHA256, "u", "hunter2"}}, "SASL without TLS"},
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
	c, err := New(Options{Brokers: []string{"a:1"}, Security: Security{TLS: &tls.Config{}, SASL: &SASL{ScramSHA512, "u", "hunter2"}}})
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

func TestSecurity_NoVerbShowsThePassword(t *testing.T) {
	for _, mechanism := range Mechanisms() {
		o := Options{Brokers: []string{"a:1"}, Security: Security{SASL: &SASL{mechanism, "shown", "hunter2"}}}
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
