package access

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Role says what a user may do.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads everything
	Operator Role = "operator" // starts actions too
)

// Identity is the user of a request.
type Identity struct {
	Name    string     // "" on the loopback if no proxy names users
	Role    Role       // "" if From finds no identity
	Address netip.Addr // of the connection: that of the client, or of its proxy
}

// identityKey is the key of the Identity in the context of a request after Wrap.
type identityKey struct{}

// From returns the user of a request that passed Gate.Wrap. It returns the zero Identity for
// public files, and for a refused request whose user is not known.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}

// identify returns the user of a request, or why there is none. Without a proxy all users of the machine are viewers. A proxy names the
// user: it replaces the headers that a client sends. A header that is sent twice is not believed.
func (g *Gate) identify(r *http.Request, peer netip.Addr) (Identity, *Refusal) {
	s := g.o.Settings
	if s.UserHeader == "" { // checkPeer has let in the loopback alone
		return Identity{Role: Viewer}, nil
	}
	if !isProxy(s, peer) { //mutant:any-proxy-believed
		return Identity{}, notProxy
	}
	names := r.Header.Values(s.UserHeader)
	if len(names) != 1 || !validName(names[0]) {
		return Identity{}, noUser
	}
	operates := slices.Contains(s.Operators, names[0])
	if s.RoleHeader != "" {
		roles := r.Header.Values(s.RoleHeader)
		operates = len(roles) == 1 && Role(roles[0]) == Operator
	}
	i := Identity{Name: names[0], Role: Viewer}
	if operates {
		i.Role = Operator
	}
	return i, nil
}

// maxName is the longest name of a user, in bytes.
const maxName = 200

// validName reports whether a name is shown and logged as it is.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && strings.TrimSpace(name) == name &&
		!strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
}
