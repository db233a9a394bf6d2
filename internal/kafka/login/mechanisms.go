package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

// Token returns a bearer token and the time of its end. If ends is zero, Token is called for each
// connection. It must be safe for concurrent use.
type Token func(ctx context.Context) (token string, ends time.Time, err error)

var (
	bearerToken    = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // RFC 6750
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)            // RFC 7628
	extensionValue = regexp.MustCompile(`^[\x20-\x7e]+$`)
)

// CheckExtensions returns an error that names an extension that cannot be sent.
func CheckExtensions(extensions map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		if !extensionName.MatchString(name) || name == "auth" || !extensionValue.MatchString(extensions[name]) {
			return fmt.Errorf("SASL extension %q: a name has letters only and is not auth, and a value has printable ASCII letters", name)
		}
	}
	return nil
}

// OAuthBearer returns the mechanism OAUTHBEARER (RFC 7628), which sends a token to the broker and,
// beside it, the extensions.
func OAuthBearer(token Token, extensions map[string]string, log *slog.Logger) sasl.Mechanism {
	var tail strings.Builder
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		fmt.Fprintf(&tail, "\x01%s=%s", name, extensions[name])
	}
	return &oauthBearer{newRenewed(token, log), tail.String()}
}

type oauthBearer struct {
	token      *renewed
	extensions string // as they are sent
}

// Name implements sasl.Mechanism.
func (*oauthBearer) Name() string { return "OAUTHBEARER" }

// Start implements sasl.Mechanism.
func (m *oauthBearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := m.token.current(ctx)
	if err == nil && !bearerToken.MatchString(token) { // do not quote it
		err = fmt.Errorf("what came as a token is none: %d bytes, with letters that no token has", len(token))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("no token for Kafka: %w", err)
	}
	return &bearerAnswer{}, []byte("n,,\x01auth=Bearer " + token + m.extensions + "\x01\x01"), nil
}

// bearerAnswer reads the broker's answers. An accepted token has an empty answer. A rejected token has
// a JSON answer; the client sends one byte, and the broker rejects the login.
type bearerAnswer struct{ rejected error }

// Next implements sasl.StateMachine.
func (a *bearerAnswer) Next(_ context.Context, answer []byte) (done bool, response []byte, err error) {
	if a.rejected != nil || len(answer) == 0 {
		return true, nil, a.rejected
	}
	var reason struct{ Status string }
	if json.Unmarshal(answer, &reason) != nil {
		return false, nil, errors.New("the broker's answer to a token is not that of OAUTHBEARER")
	}
	a.rejected = fmt.Errorf("%w: %.100q", kafka.SASLAuthenticationFailed, reason.Status)
	return false, []byte{1}, nil
}
