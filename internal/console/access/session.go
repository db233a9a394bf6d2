package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// sessionTime is how long a browser need not send a password again: a working day.
const sessionTime = 12 * time.Hour

// sessionCookie returns the name of the cookie. With TLS no other host and no plain HTTP can set it.
func sessionCookie(encrypted bool) string {
	if encrypted {
		return "__Host-orderclose-session"
	}
	return "orderclose-session"
}

// session returns the cookie of a user whose password was accepted. It holds as long as the user's hash and this process stay.
func (p *passwords) session(name string, encrypted bool) *http.Cookie {
	ends := time.Now().Add(sessionTime)
	value := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", ends.Unix(), name))
	return &http.Cookie{Name: sessionCookie(encrypted), Value: value + "." + p.sign(value, name), Path: "/", Expires: ends,
		Secure: encrypted, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// sign returns the signature of a session.
func (p *passwords) sign(value, name string) string {
	hash, _ := p.file.get().hashOf(name)
	mac := hmac.New(sha256.New, p.key[:])
	fmt.Fprintf(mac, "session %s %s", value, hash)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signedIn returns the user of a request with the cookie of a session.
func (p *passwords) signedIn(r *http.Request, encrypted bool) (name string, ok bool) {
	cookie, err := r.Cookie(sessionCookie(encrypted))
	if err != nil {
		return "", false
	}
	value, signature, _ := strings.Cut(cookie.Value, ".")
	text, err := base64.RawURLEncoding.DecodeString(value)
	end, name, _ := strings.Cut(string(text), " ")
	var ends int64
	if _, scanErr := fmt.Sscan(end, &ends); err != nil || scanErr != nil || time.Now().Unix() > ends {
		return "", false
	}
	_, known := p.file.get().hashOf(name)
	return name, known && hmac.Equal([]byte(signature), []byte(p.sign(value, name))) //mutant:session-unsigned
}
