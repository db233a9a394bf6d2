// Package signature signs requests to a URL of a user, and verifies them, as Standard Webhooks say
// (https://www.standardwebhooks.com). docs/http.md describes it for other languages.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxAge is the largest accepted difference between a request's timestamp and the receiver's clock.
	MaxAge = 5 * time.Minute

	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp" // when the request was signed, in unix seconds
	headerSignature = "Webhook-Signature" // a signature by each key, separated by spaces
	minKey, maxKey  = 24, 64              // the length of a key, in bytes
	remedy          = "; make one with: echo whsec_$(openssl rand -base64 32)"
)

// Reasons to reject a request. No text reveals the right signature.
var (
	ErrMissing   = errors.New("the request is not signed")
	ErrWrong     = errors.New("the request has no valid signature: is the secret the same on both sides?")
	ErrTimestamp = errors.New("the request was not signed within the last 5 minutes: are both clocks right?")
)

// Keys sign and verify requests as Standard Webhooks say. While a secret is being replaced there are two.
type Keys [][]byte

// Split splits the value of an environment variable or file, which separates secrets by commas, spaces or line breaks.
func Split(raw string) []string {
	return strings.FieldsFunc(raw, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

// Parse returns the keys of secrets. The error shows no secret.
func Parse(secrets []string) (Keys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there is no secret" + remedy)
	}
	keys := make(Keys, len(secrets))
	for i, secret := range secrets {
		encoded, is := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !is || err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("secret %d is not whsec_ and %d to %d bytes in base64"+remedy, i+1, minKey, maxKey)
		}
		keys[i] = key
	}
	return keys, nil
}

// Sign sets the headers of a request with this body that is sent at the given time. The id must have no dot, which separates
// the parts of what is signed.
func (k Keys) Sign(h http.Header, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, strings.Join(k.signatures(id, timestamp, body), " "))
}

// Verify checks that the body was signed with one of the keys, at most MaxAge before or after now. It hashes the body once for each
// key, however many signatures the request has: an attacker may send as many as fit into the headers, with the largest accepted body.
func (k Keys) Verify(h http.Header, body []byte, now time.Time) error {
	if err := CheckHeaders(h, now); err != nil {
		return err
	}
	id, timestamp, given := h.Get(headerID), h.Get(headerTimestamp), h.Get(headerSignature)
	right := false
	for _, signature := range k.signatures(id, timestamp, body) {
		for one := range strings.FieldsSeq(given) {
			right = right || hmac.Equal([]byte(one), []byte(signature)) // takes constant time
		}
	}
	if !right {
		return ErrWrong
	}
	return nil
}

// CheckHeaders is what Verify can check without the body: the headers are there, and the time in them is at most MaxAge before or after
// now. A receiver calls it before it reads a body.
func CheckHeaders(h http.Header, now time.Time) error {
	if h.Get(headerID) == "" || h.Get(headerTimestamp) == "" || h.Get(headerSignature) == "" {
		return ErrMissing
	}
	seconds, err := strconv.ParseInt(h.Get(headerTimestamp), 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > MaxAge {
		return ErrTimestamp
	}
	return nil
}

// signatures returns a signature by each key.
func (k Keys) signatures(id, timestamp string, body []byte) []string {
	all := make([]string, len(k))
	for i, key := range k {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + timestamp + "."))
		h.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return all
}

// CheckURL reports why signed requests cannot be sent to a URL; nil if they can.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // the error quotes the URL with its secrets
		return errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return errors.New("it is not http://host/path or https://host/path")
	case u.User != nil:
		return errors.New("it holds a user or password; requests are signed instead")
	case u.Fragment != "":
		return errors.New("it has a fragment, which is never sent to a server")
	}
	return nil
}
