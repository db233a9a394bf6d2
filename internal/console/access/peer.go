package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/environ"
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
func isProxy(s environ.Console, peer netip.Addr) bool {
	return slices.ContainsFunc(s.Proxies, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// checkPeer refuses requests that crossed a network and no listed proxy. Plain HTTP is for the loopback,
// and for proxies that the user listed because they terminate TLS. A proxy that tells that its
// client has no TLS is believed.
func (g *Gate) checkPeer(r *http.Request, peer netip.Addr) *Refusal {
	switch proxy := isProxy(g.o.Settings, peer); {
	case !proxy && !peer.IsLoopback(): //mutant:network-reads
		return notProxy
	case proxy && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "http"):
		return noTLS
	}
	return nil
}

// acceptedHosts returns the hosts that the Host header may name, in the form of hostOf. A page of
// another site whose name resolves to this console (DNS rebinding) sends the name of that site.
func acceptedHosts(s environ.Console) map[string]bool {
	hosts := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	listen := hostOf(s.Listen)
	if ip, err := netip.ParseAddr(listen); listen != "" && (err != nil || !ip.IsUnspecified()) {
		hosts[listen] = true
	}
	for _, host := range s.Hosts {
		hosts[hostOf(host)] = true
	}
	return hosts
}

// hostOf returns the host of a Host header without its port, in the one form of its name or
// address. The port is not compared: a tunnel or a proxy may change it.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil { // there is no port
		host = header
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
			host = host[1 : len(host)-1]
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
