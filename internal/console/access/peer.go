package access

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
)

// peerOf returns the address of the connection. Headers such as X-Forwarded-For do not change it:
// every client can send them. The zero Addr is neither a proxy nor on the loopback.
func peerOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// isProxy reports whether the user listed the address.
func isProxy(s config.Console, peer netip.Addr) bool {
	for _, prefix := range s.Proxies {
		if prefix.Contains(peer) {
			return true
		}
	}
	return false
}

// checkPeer refuses requests that crossed a network without TLS. Plain HTTP is for the loopback,
// and for proxies that the user listed because they terminate TLS. A proxy that tells that its
// client has no TLS is believed.
func (g *Gate) checkPeer(r *http.Request, peer netip.Addr) *Refusal {
	proxy := isProxy(g.o.Settings, peer)
	switch {
	case proxy && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "http"):
		return refused(NoTLS)
	case r.TLS == nil && !proxy && !peer.IsLoopback():
		return refused(NoTLS)
	}
	return nil
}

// encrypted reports whether the browser uses TLS: to this process, or to a listed proxy.
func (g *Gate) encrypted(r *http.Request) bool {
	return r.TLS != nil || isProxy(g.o.Settings, peerOf(r))
}
