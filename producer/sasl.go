package producer

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"orderclose/internal/kafka"
)

// The mechanisms of SASL. PLAIN shows the password to the broker, and without TLS
// to everybody on the way.
const (
	SASLPlain       = kafka.Plain
	SASLScramSHA256 = kafka.ScramSHA256
	SASLScramSHA512 = kafka.ScramSHA512
)

// SASL is a user of the Kafka cluster and its password. Printed or logged, it
// hides the password.
type SASL struct {
	Mechanism string // SASLPlain, SASLScramSHA256 or SASLScramSHA512
	User      string
	Password  string
}

// String says who, without the password.
func (s SASL) String() string { return kafka.SASL(s).String() }

// Format is String whatever the verb.
func (s SASL) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON is String too.
func (s SASL) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
