package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/orderclose/orderclose/internal/kafka/login"
	"github.com/orderclose/orderclose/internal/tlsfault"
)

// Security says how all connections are secured, those of requests and of group memberships.
// The zero value means neither encryption nor authentication.
type Security struct {
	// TLS encrypts connections and checks the broker's certificate against RootCAs. Client
	// certificates in it identify this process to the broker (mutual TLS). An empty ServerName
	// stands for the host of each broker.
	TLS *tls.Config
	// SASL identifies this process by a user name and password, or by a token.
	SASL *SASL
}

// The supported SASL mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER" // by SASL.Token
)

// Mechanisms returns the supported SASL mechanisms: first those with a password, the strongest first.
func Mechanisms() []string { return []string{ScramSHA512, ScramSHA256, Plain, OAuthBearer} }

// SASL says who this process is, and how it proves that. Printed or logged, it hides the password and
// the token.
type SASL struct {
	Mechanism string // one of Mechanisms
	User      string // with OAuthBearer only for error messages
	Password  string // none with OAuthBearer

	// Token is for OAuthBearer. It returns a token, and the time of its end. A token is used until
	// half of its life is over; if ends is zero, for one login. Token is called for new connections and
	// before the broker's sessions end. It must be safe for concurrent use and return within 3 s.
	Token func(context.Context) (token string, ends time.Time, err error)
	// Extensions are for OAuthBearer: names and values that the broker wants beside the token.
	Extensions map[string]string
}

// Check returns an error that says which field is missing or wrong.
func (s SASL) Check() error {
	switch {
	case !slices.Contains(Mechanisms(), s.Mechanism):
		return fmt.Errorf("unknown SASL mechanism %q: use one of %s", s.Mechanism, strings.Join(Mechanisms(), ", "))
	case s.Mechanism != OAuthBearer && (s.Token != nil || len(s.Extensions) > 0):
		return fmt.Errorf("SASL %s sends no token and no extensions: only OAUTHBEARER does", s.Mechanism)
	case s.Mechanism == OAuthBearer && s.Token == nil:
		return errors.New("SASL OAUTHBEARER needs a source of tokens")
	case s.Mechanism == OAuthBearer:
		return login.CheckExtensions(s.Extensions)
	case s.User == "":
		return fmt.Errorf("SASL %s needs a user", s.Mechanism)
	case s.Password == "":
		return fmt.Errorf("SASL %s needs the password of user %q", s.Mechanism, s.User)
	}
	return nil
}

// String returns the mechanism and the user, without the password.
func (s SASL) String() string {
	if s.User == "" {
		return s.Mechanism
	}
	return fmt.Sprintf("%s as user %q", s.Mechanism, s.User)
}

// Format writes String for every verb, so that no verb prints the password.
func (s SASL) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText returns String, for logs and JSON.
func (s SASL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String describes the security in words, without secrets.
func (s Security) String() string {
	how := "not encrypted"
	if s.TLS != nil {
		how = "TLS"
	}
	if s.TLS != nil && len(s.TLS.Certificates) > 0 {
		how = "mutual TLS"
	}
	if s.SASL != nil {
		how += ", SASL " + s.SASL.String()
	}
	return how
}

// Format writes String for every verb.
func (s Security) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText returns String, for logs and JSON.
func (s Security) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// who returns the principal for error messages, as the broker knows it.
func (s Security) who() string {
	if s.SASL != nil && s.SASL.User == "" {
		return "the client of this login"
	}
	if s.SASL != nil {
		return fmt.Sprintf("user %q", s.SASL.User)
	}
	if subject := tlsfault.Subject(s.TLS); subject != "" {
		return fmt.Sprintf("the client with certificate %q", subject)
	}
	return "a client without credentials"
}

// startSASL is Start of a sasl.Mechanism. Being a function, it shows no password and no token, even if a value that has it is printed.
type startSASL func(ctx context.Context) (sasl.StateMachine, []byte, error)

// start returns how each connection begins its login; nil without SASL. log gets what goes wrong with a login that is renewed.
func (s Security) start(log *slog.Logger) (startSASL, error) {
	if s.SASL == nil {
		return nil, nil
	}
	if err := s.SASL.Check(); err != nil {
		return nil, err
	}
	algorithm := scram.SHA512
	switch s.SASL.Mechanism {
	case OAuthBearer:
		return login.OAuthBearer(s.SASL.Token, s.SASL.Extensions, log).Start, nil
	case Plain:
		return plain.Mechanism{Username: s.SASL.User, Password: s.SASL.Password}.Start, nil
	case ScramSHA256:
		algorithm = scram.SHA256
	}
	m, err := scram.Mechanism(algorithm, s.SASL.User, s.SASL.Password)
	if err != nil { // err may contain the password
		return nil, errors.New("user or password have characters that SASL does not allow (RFC 4013)")
	}
	return m.Start, nil
}

// withoutPassword returns a copy for errors and logs.
func (s Security) withoutPassword() Security {
	if s.SASL != nil {
		s.SASL = &SASL{Mechanism: s.SASL.Mechanism, User: s.SASL.User}
	}
	return s
}

// warning returns a warning for the log if the security is weak, else "".
func (s Security) warning() string {
	switch {
	case s.TLS != nil || s.SASL == nil:
		return ""
	case s.SASL.Mechanism == Plain:
		return "SASL PLAIN without TLS sends the password in clear text"
	case s.SASL.Mechanism == OAuthBearer:
		return "SASL OAUTHBEARER without TLS sends the token in clear text"
	}
	return "SASL without TLS protects only the password: other data can be read and changed on the network"
}
