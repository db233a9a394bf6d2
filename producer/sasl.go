package producer

import "github.com/orderclose/orderclose/internal/kafka"

// SASL mechanisms. PLAIN shows the password to the broker, and without TLS to
// every host on the network path. OAUTHBEARER does the same with a token.
const (
	SASLPlain       = kafka.Plain
	SASLScramSHA256 = kafka.ScramSHA256
	SASLScramSHA512 = kafka.ScramSHA512
	SASLOAuthBearer = kafka.OAuthBearer
)

// SASL is a user of the Kafka cluster with a password, or another way to log in. Printing or logging it hides the password and the
// token. Its fields:
//
//	Mechanism  string            // one of the mechanisms above
//	User       string            // not needed for SASLOAuthBearer
//	Password   string            // none with SASLOAuthBearer
//	Token      func(context.Context) (token string, ends time.Time, err error) // for SASLOAuthBearer
//	Extensions map[string]string // for SASLOAuthBearer: what the broker wants beside the token
type SASL = kafka.SASL
