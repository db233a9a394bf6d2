package access

import "net/http"

// Reason says why a request is refused. It is the key of a text in the catalogue of the console.
type Reason string

// The reasons.
const (
	WrongMethod   Reason = "wrong_method"
	WrongPath     Reason = "wrong_path"
	WrongHost     Reason = "wrong_host"
	NoTLS         Reason = "no_tls"
	OtherSite     Reason = "other_site"
	NotSignedIn   Reason = "not_signed_in"
	WrongLogin    Reason = "wrong_login"
	TooMany       Reason = "too_many_logins"
	Busy          Reason = "busy"
	NotProxy      Reason = "not_proxy"
	NoUser        Reason = "no_user"
	NoCertificate Reason = "no_certificate"
	NotJSON       Reason = "not_json"
	BadForm       Reason = "bad_form"
	TooLarge      Reason = "too_large"
	ActionsOff    Reason = "actions_off"
	NotOperator   Reason = "not_operator"
)

// refusals has the status and the text of each reason. No text depends on the request.
var refusals = map[Reason]Refusal{
	WrongMethod: {Status: http.StatusMethodNotAllowed, Text: "this method is not allowed here"},
	WrongPath:   {Status: http.StatusBadRequest, Text: "the path has empty segments, dots or escapes; use the links of the pages"},
	WrongHost:   {Status: http.StatusMisdirectedRequest, Text: "the console does not serve this host name; list it in ORDERCLOSE_CONSOLE_HOSTS"},
	NoTLS: {Status: http.StatusForbidden, Text: "off the loopback the console needs TLS; use https, " +
		"and list proxies that terminate TLS in ORDERCLOSE_CONSOLE_PROXIES"},
	OtherSite:   {Status: http.StatusForbidden, Text: "the request comes from a page of another site; use the pages of the console"},
	NotSignedIn: {Status: http.StatusUnauthorized, Text: "sign in with user and password: the header Authorization, as of curl -u"},
	WrongLogin:  {Status: http.StatusUnauthorized, Text: "user or password are not valid"},
	TooMany:     {Status: http.StatusTooManyRequests, Text: "too many logins from this address failed; wait some seconds"},
	Busy:        {Status: http.StatusServiceUnavailable, Text: "too many passwords are being checked; try again"},
	NotProxy: {Status: http.StatusForbidden, Text: "users are known by their proxy, and the request comes from another address; " +
		"open the console through the proxy, or list its address in ORDERCLOSE_CONSOLE_PROXIES"},
	NoUser: {Status: http.StatusForbidden, Text: "the proxy sets no valid user; let it set the header of ORDERCLOSE_CONSOLE_USER_HEADER " +
		"to one name, in place of what the client sends"},
	NoCertificate: {Status: http.StatusForbidden, Text: "there is no client certificate whose subject has a valid common name; " +
		"give the browser one that the CA of the console has signed"},
	NotJSON:     {Status: http.StatusUnsupportedMediaType, Text: "the API accepts Content-Type: application/json only"},
	BadForm:     {Status: http.StatusBadRequest, Text: "the form cannot be read"},
	TooLarge:    {Status: http.StatusRequestEntityTooLarge, Text: "the body of the request is too large"},
	ActionsOff:  {Status: http.StatusForbidden, Text: "the console is read-only; ORDERCLOSE_CONSOLE_ACTIONS=1 allows actions"},
	NotOperator: {Status: http.StatusForbidden, Text: "you are a viewer; actions need an operator"},
}

// Reasons returns all reasons, so that a test can compare them with the catalogue.
func Reasons() []Reason {
	var all []Reason
	for reason := range refusals {
		all = append(all, reason)
	}
	return all
}

// Refusal is the response to a request that a check refused.
type Refusal struct {
	Status int
	Reason Reason
	Text   string // what is wrong and what to do, in English, without anything of the request
	API    bool   // the request is one of the JSON API
}

func refused(reason Reason) *Refusal {
	refusal := refusals[reason]
	refusal.Reason = reason
	return &refusal
}
