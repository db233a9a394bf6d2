package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
)

// SASL mechanisms. PLAIN shows the password to the broker, and without TLS to
// every host on the network path. OAUTHBEARER does the same with a token. AWS_MSK_IAM signs with the
// credentials of AWS that the environment of the process names.
const (
	SASLPlain       = kafka.Plain
	SASLScramSHA256 = kafka.ScramSHA256
	SASLScramSHA512 = kafka.ScramSHA512
	SASLOAuthBearer = kafka.OAuthBearer
	SASLMSKIAM      = kafka.MSKIAM
)

// SASL is a user of the Kafka cluster with a password, or another way to log in. Printing or logging it
// hides the password and the token.
type SASL struct {
	Mechanism string // one of the mechanisms above
	User      string // with SASLOAuthBearer only for error messages; none with SASLMSKIAM
	Password  string // none with SASLOAuthBearer and SASLMSKIAM

	// Token is for SASLOAuthBearer. It returns a token, and the time of its end. A token is used until
	// half of its life is over; if ends is zero, for one login. Token is called for new connections and
	// before the broker's sessions end. It must be safe for concurrent use and return within 3 s.
	Token func(context.Context) (token string, ends time.Time, err error)
	// Extensions are for SASLOAuthBearer: names and values that the broker wants beside the token.
	Extensions map[string]string
}

// String returns the mechanism and the user, without the password.
func (s SASL) String() string { return kafka.SASL(s).String() }

// Format prints String for every verb.
func (s SASL) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue returns String, for slog.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON encodes String.
func (s SASL) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
