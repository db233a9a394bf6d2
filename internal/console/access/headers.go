package access

import (
	"net/http"
	"net/netip"
)

// contentPolicy lets pages use style, images, scripts, data and forms of this console only, and
// nothing inline. No page may show the console in a frame.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; worker-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// strictTransport makes browsers use TLS for a day after each visit. It is short because it holds
// for every port of the host, and other services there may have no TLS.
const strictTransport = "max-age=86400"

func (g *Gate) setHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	// With no-referrer browsers would send the header Origin as null, which reads as another site.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if g.encrypted(r) && !onLoopback(r.Host) {
		h.Set("Strict-Transport-Security", strictTransport)
	}
}

// onLoopback reports whether a Host header names the loopback, where other programs that are
// developed on the machine listen without TLS.
func onLoopback(header string) bool {
	host := hostOf(header)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
