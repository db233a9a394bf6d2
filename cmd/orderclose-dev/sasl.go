package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/orderclose/orderclose/internal/kafka"
)

// mechanism returns the SASL mechanism for the checker, which has a Kafka client of its own
// and uses the same user.
func mechanism(s *kafka.SASL) sasl.Mechanism {
	switch {
	case s == nil:
		return nil
	case s.Mechanism == kafka.Plain:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case s.Mechanism == kafka.OAuthBearer:
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, _, err := s.Token(ctx)
			return oauth.Auth{Token: token, Extensions: s.Extensions}, err
		})
	}
	auth := scram.Auth{User: s.User, Pass: s.Password}
	if s.Mechanism == kafka.ScramSHA256 {
		return auth.AsSha256Mechanism()
	}
	return auth.AsSha512Mechanism()
}
