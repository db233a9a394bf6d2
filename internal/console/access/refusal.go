package access

import "net/http"

// Reason says why a request is refused. It is the key of a text in the catalogue of the console.
type Reason string

// Refusal is the response to a request that a check refused.
type Refusal struct {
	Status int
	Reason Reason
}

// The refusals.
var (
	wrongMethod = &Refusal{http.StatusMethodNotAllowed, "wrong_method"}
	wrongPath   = &Refusal{http.StatusBadRequest, "wrong_path"} // empty segments, dots or escapes
	wrongHost   = &Refusal{http.StatusMisdirectedRequest, "wrong_host"}
	noTLS       = &Refusal{http.StatusForbidden, "no_tls"} // between the browser and the proxy
	otherSite   = &Refusal{http.StatusForbidden, "other_site"}
	notProxy    = &Refusal{http.StatusForbidden, "not_proxy"}
	noUser      = &Refusal{http.StatusForbidden, "no_user"}
	badForm     = &Refusal{http.StatusBadRequest, "bad_form"}
	tooLarge    = &Refusal{http.StatusRequestEntityTooLarge, "too_large"}
	notOperator = &Refusal{http.StatusForbidden, "not_operator"}
)
