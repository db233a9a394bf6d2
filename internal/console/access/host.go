package access

import (
	"net"
	"net/netip"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
)

// acceptedHosts returns the hosts that the Host header may name, in the form of hostOf. A page of
// another site whose name resolves to this console (DNS rebinding) sends the name of that site.
func acceptedHosts(s config.Console) map[string]bool {
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
