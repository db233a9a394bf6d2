package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"mime"
	"net/http"
)

// Browsers send cookies, passwords and the user of a proxy with requests that pages of other
// sites cause. Three things stop them: Sec-Fetch-Site and Origin (Gate.admit), the token below,
// and for the API the content type, which a form of another site cannot set.

// The field of forms and the header of scripts that have the CSRF token.
const (
	csrfField  = "csrf"
	csrfHeader = "X-CSRF-Token"
)

// csrfToken returns the token of a user: of the session, or of the name while this process lives.
func (g *Gate) csrfToken(u user) string {
	subject := "user " + u.name
	if u.session != "" {
		subject = "session " + u.session
	}
	mac := hmac.New(sha256.New, g.key[:])
	mac.Write([]byte(subject))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// checkCSRF refuses POST requests that another site may have caused.
func (g *Gate) checkCSRF(r *http.Request, i Identity) *Refusal {
	if r.Method != http.MethodPost {
		return nil
	}
	if g.isAPI(r) {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
			return refused(NotJSON)
		}
		if !i.Session { // a program, which has no cookie and has seen no page
			return nil
		}
	}
	token := r.Header.Get(csrfHeader)
	if token == "" && !g.isAPI(r) {
		if r.ParseForm() != nil {
			return refused(BadForm)
		}
		token = r.PostForm.Get(csrfField)
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(i.CSRF)) != 1 {
		return refused(NoCSRFToken)
	}
	return nil
}
