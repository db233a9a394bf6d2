package access

import (
	"net/http"
	"net/netip"

	"github.com/orderclose/orderclose/internal/config"
)

// certificates is the method of users with client certificates. The TLS handshake has verified the certificate;
// the common name of its subject is the user.
type certificates struct{ settings config.Console }

func (c certificates) identify(r *http.Request, _ netip.Addr) (user, *Refusal) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return user{}, refused(NoCertificate)
	}
	name := r.TLS.VerifiedChains[0][0].Subject.CommonName
	if !validName(name) {
		return user{}, refused(NoCertificate)
	}
	return user{name, roleOf(c.settings, name)}, nil
}
