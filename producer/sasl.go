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

// SASL is a user of the Kafka cluster with a password, or another way to log in: Mechanism is one of the mechanisms above, with User and
// Password, or for SASLOAuthBearer Token, a function that returns a token and the time of its end, and Extensions. Printing or logging
// it hides the password and the token.
type SASL = kafka.SASL
