package httpcall

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
	// HeaderSignature has one signature for each secret, separated by commas.
	HeaderSignature = "Orderclose-Signature"
)

// MaxAge is the largest accepted difference between a request's timestamp and the
// receiver's clock.
const MaxAge = 5 * time.Minute

// MinSecret is the minimum length of a secret, in bytes: 128 bits, if it is random.
const MinSecret = 16

// scheme is the prefix of each signature. Another way to sign gets another prefix.
const scheme = "v1="

// Reasons to reject a request. No text reveals the right signature.
var (
	ErrNoSignature  = errors.New("the request is not signed")
	ErrBadSignature = errors.New("the request has no valid signature: is the secret the same on both sides?")
	ErrBadTimestamp = errors.New("the request was not signed within the last 5 minutes: are both clocks right?")
)

// CheckSecrets reports why the secrets cannot sign and verify requests; nil if they
// can.
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

// Sign returns the values of the two headers for a body that is sent at the given
// time. While a secret is being replaced there are two secrets, and two signatures.
func Sign(secrets []string, at time.Time, body []byte) (timestamp, signature string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = scheme + hex.EncodeToString(mac(secret, timestamp, body))
	}
	return timestamp, strings.Join(signatures, ",")
}

// Verify checks that the body was signed with one of the secrets, at most MaxAge
// before or after now. It returns ErrNoSignature, ErrBadSignature, ErrBadTimestamp or nil.
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

// signedBy computes one MAC for each secret, however many signatures the request has:
// an attacker may send as many as fit into the headers, with the largest accepted
// body.
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
			if hmac.Equal(given, r) { // takes constant time
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
