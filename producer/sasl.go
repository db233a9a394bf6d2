package producer

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/orderclose/orderclose/internal/kafka"
)

// SASL mechanisms. PLAIN shows the password to the broker, and without TLS to
// every host on the network path.
const (
	SASLPlain       = kafka.Plain
	SASLScramSHA256 = kafka.ScramSHA256
	SASLScramSHA512 = kafka.ScramSHA512
)

// SASL is a user of the Kafka cluster with a password. Printing or logging it hides
// the password.
type SASL struct {
	Mechanism string // SASLPlain, SASLScramSHA256 or SASLScramSHA512
	User      string
	Password  string
}

// String returns the mechanism and the user, without the password.
func (s SASL) String() string { return kafka.SASL(s).String() }

// Format prints String for every verb.
func (s SASL) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue returns String, for slog.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON encodes String.
func (s SASL) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
