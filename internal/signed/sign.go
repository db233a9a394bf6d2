// Package signed is how orderclose speaks to a user's services over HTTP: POST
// requests with JSON, signed with a shared secret and the time (sign.go), sent by
// a client that trusts nothing it gets back (client.go), and taken in by a
// receiver that trusts nothing either (receive.go). docs/http.md describes it for
// other languages.
package signed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	// HeaderTimestamp is when the request was signed, in unix seconds.
	HeaderTimestamp = "Orderclose-Timestamp"
	// HeaderSignature has a signature for each secret, separated by commas.
	HeaderSignature = "Orderclose-Signature"
)

// MaxAge is how far a request's timestamp may be from the receiver's clock.
const MaxAge = 5 * time.Minute

// MinSecret is the shortest secret, in bytes: 128 bits, if it is random.
const MinSecret = 16

// scheme is what each signature begins with; another way to sign gets another.
const scheme = "v1="

// What is wrong with a request. None of them says how a right signature looks.
var (
	ErrNoSignature  = errors.New("the request is not signed")
	ErrBadSignature = errors.New("no signature of the request is right: is the secret the same on both sides?")
	ErrBadTimestamp = errors.New("the request was not signed within the last 5 minutes: are both clocks right?")
)

// CheckSecrets reports whether requests can be signed and verified with secrets.
func CheckSecrets(secrets []string) error {
	if len(secrets) == 0 {
		return errors.New("there is no secret")
	}
	for i, s := range secrets {
		if len(s) < MinSecret {
			return fmt.Errorf("secret %d has %d characters, at least %d are needed; make one with: openssl rand -hex 32", i+1, len(s), MinSecret)
		}
	}
	return nil
}

// Sign returns the values of the two headers for a body that is sent at a
// moment. While a secret is being changed there are two, and two signatures.
func Sign(secrets []string, at time.Time, body []byte) (timestamp, signature string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = scheme + hex.EncodeToString(mac(secret, timestamp, body))
	}
	return timestamp, strings.Join(signatures, ",")
}

// Verify reports whether the headers of a request say that somebody who knows
// one of the secrets has signed the body, at most MaxAge before or after now.
func Verify(secrets []string, h http.Header, body []byte, now time.Time) error {
	timestamp, signature := h.Get(HeaderTimestamp), strings.Join(h.Values(HeaderSignature), ",")
	if timestamp == "" || signature == "" {
		return ErrNoSignature
	}
	if !signedBy(secrets, timestamp, signature, body) {
		return ErrBadSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > MaxAge {
		return ErrBadTimestamp
	}
	return nil
}

// signedBy works once for each secret, however many signatures there are: a stranger
// sends as many as fit into a header, beside the largest body that is taken.
func signedBy(secrets []string, timestamp, signature string, body []byte) bool {
	right := make([][]byte, len(secrets))
	for i, secret := range secrets {
		right[i] = mac(secret, timestamp, body)
	}
	for one := range strings.SplitSeq(signature, ",") {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(one), scheme)
		given, err := hex.DecodeString(encoded)
		if !ok || err != nil {
			continue
		}
		for _, r := range right {
			if hmac.Equal(given, r) { // takes the same time for any two
				return true
			}
		}
	}
	return false
}

func mac(secret, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(timestamp))
	h.Write([]byte("."))
	h.Write(body)
	return h.Sum(nil)
}
