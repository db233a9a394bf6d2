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
}

// reasons are those of all refusals.
var reasons []Reason

// Reasons returns all reasons, so that a test can compare them with the catalogue.
func Reasons() []Reason { return slices.Clone(reasons) }

func newRefusal(reason Reason, status int) *Refusal {
	reasons = append(reasons, reason)
	return &Refusal{Status: status, Reason: reason}
}

// The refusals.
var (
	wrongMethod = newRefusal("wrong_method", http.StatusMethodNotAllowed)
	wrongPath   = newRefusal("wrong_path", http.StatusBadRequest) // empty segments, dots or escapes
	wrongHost   = newRefusal("wrong_host", http.StatusMisdirectedRequest)
	noTLS       = newRefusal("no_tls", http.StatusForbidden) // between the browser and the proxy
	otherSite   = newRefusal("other_site", http.StatusForbidden)
	notProxy    = newRefusal("not_proxy", http.StatusForbidden)
	noUser      = newRefusal("no_user", http.StatusForbidden)
	badForm     = newRefusal("bad_form", http.StatusBadRequest)
	tooLarge    = newRefusal("too_large", http.StatusRequestEntityTooLarge)
	notOperator = newRefusal("not_operator", http.StatusForbidden)
)
