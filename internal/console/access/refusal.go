package access

import (
	"net/http"
	"slices"
)

// Reason says why a request is refused. It is the key of a text in the catalogue of the console.
type Reason string

// Refusal is the response to a request that a check refused.
type Refusal struct {
	Status int
	Reason Reason
	Text   string // what is wrong and what to do, in English, without anything of the request
	API    bool   // the request is one of the JSON API
}

// reasons are those of all refusals.
var reasons []Reason

// Reasons returns all reasons, so that a test can compare them with the catalogue.
func Reasons() []Reason { return slices.Clone(reasons) }

func newRefusal(reason Reason, status int, text string) *Refusal {
	reasons = append(reasons, reason)
	return &Refusal{Status: status, Reason: reason, Text: text}
}

// The refusals. No text depends on the request.
var (
	wrongMethod = newRefusal("wrong_method", http.StatusMethodNotAllowed, "this method is not allowed here")
	wrongPath   = newRefusal("wrong_path", http.StatusBadRequest, "the path has empty segments, dots or escapes; use the links of the pages")
	wrongHost   = newRefusal("wrong_host", http.StatusMisdirectedRequest, "the console does not serve this host name; list it in ORDERCLOSE_CONSOLE_HOSTS")
	noTLS       = newRefusal("no_tls", http.StatusForbidden, "off the loopback the console needs TLS; use https, "+
		"and list proxies that terminate TLS in ORDERCLOSE_CONSOLE_PROXIES")
	otherSite   = newRefusal("other_site", http.StatusForbidden, "the request comes from a page of another site; use the pages of the console")
	notSignedIn = newRefusal("not_signed_in", http.StatusUnauthorized, "sign in with user and password: the header Authorization, as of curl -u")
	wrongLogin  = newRefusal("wrong_login", http.StatusUnauthorized, "user or password are not valid")
	tooMany     = newRefusal("too_many_logins", http.StatusTooManyRequests, "too many logins from this address failed; wait some seconds")
	busy        = newRefusal("busy", http.StatusServiceUnavailable, "too many passwords are being checked; try again")
	notProxy    = newRefusal("not_proxy", http.StatusForbidden, "users are known by their proxy, and the request comes from another address; "+
		"open the console through the proxy, or list its address in ORDERCLOSE_CONSOLE_PROXIES")
	noUser = newRefusal("no_user", http.StatusForbidden, "the proxy sets no valid user; let it set the header of ORDERCLOSE_CONSOLE_USER_HEADER "+
		"to one name, in place of what the client sends")
	noCertificate = newRefusal("no_certificate", http.StatusForbidden, "there is no client certificate whose subject has a valid common name; "+
		"give the browser one that the CA of the console has signed")
	notJSON     = newRefusal("not_json", http.StatusUnsupportedMediaType, "the API accepts Content-Type: application/json only")
	badForm     = newRefusal("bad_form", http.StatusBadRequest, "the form cannot be read")
	tooLarge    = newRefusal("too_large", http.StatusRequestEntityTooLarge, "the body of the request is too large")
	notOperator = newRefusal("not_operator", http.StatusForbidden, "you are a viewer; actions need an operator")
)
