package access

import (
	"net/http"
	"net/netip"

	"github.com/orderclose/orderclose/internal/config"
)

// proxyHeader is the method of users whom a proxy knows. The proxy replaces the headers that a
// client sends; a header that is sent twice is not believed.
type proxyHeader struct{ settings config.Console }

func (p proxyHeader) identify(r *http.Request, peer netip.Addr) (user, *Refusal) {
	if !isProxy(p.settings, peer) {
		return user{}, refused(NotProxy)
	}
	names := r.Header.Values(p.settings.UserHeader)
	if len(names) != 1 || !validName(names[0]) {
		return user{}, refused(NoUser)
	}
	u := user{name: names[0], role: Viewer}
	if p.settings.RoleHeader == "" {
		u.role = roleOf(p.settings, u.name)
	} else if roles := r.Header.Values(p.settings.RoleHeader); len(roles) == 1 && Role(roles[0]) == Operator {
		u.role = Operator
	}
	return u, nil
}
