package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Security says how connections are secured, each of them: requests and group
// memberships. The zero value: not at all.
type Security struct {
	// TLS encrypts connections and checks the broker's certificate against its
	// RootCAs. With certificates of its own it also tells the broker who we are
	// (mutual TLS). An empty ServerName becomes the host of each broker.
	TLS *tls.Config
	// SASL is who we are, by name and password.
	SASL *SASL
}

// The mechanisms of SASL.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// Mechanisms lists the mechanisms, the best first.
func Mechanisms() []string { return []string{ScramSHA512, ScramSHA256, Plain} }

// SASL is a user and its password. Printed or logged, it hides the password.
type SASL struct {
	Mechanism string // one of Mechanisms
	User      string
	Password  string
}

// Check says what is missing or wrong.
func (s SASL) Check() error {
	switch {
	case !slices.Contains(Mechanisms(), s.Mechanism):
		return fmt.Errorf("there is no SASL mechanism %q; take one of %s", s.Mechanism, strings.Join(Mechanisms(), ", "))
	case s.User == "":
		return fmt.Errorf("SASL %s needs a user", s.Mechanism)
	case s.Password == "":
		return fmt.Errorf("SASL %s needs the password of user %q", s.Mechanism, s.User)
	}
	return nil
}

// String says who, without the password.
func (s SASL) String() string { return fmt.Sprintf("%s as user %q", s.Mechanism, s.User) }

// Format is String whatever the verb.
func (s SASL) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON is String too.
func (s SASL) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// String says how connections are secured, without secrets.
func (s Security) String() string {
	how := "not encrypted"
	if s.TLS != nil {
		how = "TLS"
	}
	if len(certificates(s.TLS)) > 0 {
		how = "mutual TLS"
	}
	if s.SASL != nil {
		how += ", SASL " + s.SASL.String()
	}
	return how
}

// Format is String whatever the verb.
func (s Security) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s Security) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON is String too.
func (s Security) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// who is how errors name us: by what the broker can know of us.
func (s Security) who() string {
	if s.SASL != nil {
		return fmt.Sprintf("user %q", s.SASL.User)
	}
	for _, c := range certificates(s.TLS) {
		if leaf := leafOf(c); leaf != nil {
			return fmt.Sprintf("the client with certificate %q", leaf.Subject)
		}
	}
	return "a client without credentials"
}

func certificates(c *tls.Config) []tls.Certificate {
	if c == nil {
		return nil
	}
	return c.Certificates
}

func leafOf(c tls.Certificate) *x509.Certificate {
	if c.Leaf != nil || len(c.Certificate) == 0 {
		return c.Leaf
	}
	leaf, _ := x509.ParseCertificate(c.Certificate[0])
	return leaf
}

// mechanism returns what the client library takes, nil without SASL.
func (s Security) mechanism() (sasl.Mechanism, error) {
	if s.SASL == nil {
		return nil, nil
	}
	if err := s.SASL.Check(); err != nil {
		return nil, err
	}
	algorithm := scram.SHA512
	switch s.SASL.Mechanism {
	case Plain:
		m := plain.Mechanism{Username: s.SASL.User, Password: s.SASL.Password}
		return &opaque{m.Name(), m.Start}, nil
	case ScramSHA256:
		algorithm = scram.SHA256
	}
	m, err := scram.Mechanism(algorithm, s.SASL.User, s.SASL.Password)
	if err != nil { // it may quote what it refuses
		return nil, errors.New("user or password have characters that SASL does not allow (RFC 4013)")
	}
	return m, nil
}

// opaque is a mechanism of which printing shows no password, whatever is printed
// that holds it.
type opaque struct {
	name  string
	start func(ctx context.Context) (sasl.StateMachine, []byte, error)
}

// Name is the mechanism's.
func (h *opaque) Name() string { return h.name }

// Start begins a conversation.
func (h *opaque) Start(ctx context.Context) (sasl.StateMachine, []byte, error) { return h.start(ctx) }

// withoutPassword is the security as errors and logs need it.
func (s Security) withoutPassword() Security {
	if s.SASL != nil {
		s.SASL = &SASL{Mechanism: s.SASL.Mechanism, User: s.SASL.User}
	}
	return s
}

// warning says what a reader of the log should know about the security, if
// anything.
func (s Security) warning() string {
	switch {
	case s.TLS != nil || s.SASL == nil:
		return ""
	case s.SASL.Mechanism == Plain:
		return "SASL PLAIN without TLS sends the password readable to everybody on the way"
	}
	return "SASL without TLS: nobody reads the password on the way, but everything else, and nothing proves that nobody changes it"
}
