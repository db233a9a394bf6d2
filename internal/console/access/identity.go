package access

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/config"
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
	Name    string       // "" on the loopback if the console has no identity
	Role    Role         // "" if From finds no identity
	Address netip.Addr   // of the connection: that of the client, or of its proxy
	MayAct  bool         // the user is an operator, and actions are on
	session *http.Cookie // for the browser; nil: it has one, or needs none
}

// identityKey is the key of the Identity in the context of a request after Wrap.
type identityKey struct{}

// From returns the user of a request that passed Gate.Wrap. It returns the zero Identity on
// public paths, and for a refused request whose user is not known.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}

// nobody is the method of a console on the loopback without identity: all users of the machine
// are viewers.
func nobody(_ *http.Request, peer netip.Addr) (Identity, *Refusal) {
	if !peer.IsLoopback() { // whatever the listener is: nobody is known there
		return Identity{}, noTLS
	}
	return Identity{Role: Viewer}, nil
}

// byCertificate is the method of users with client certificates. The TLS handshake has verified the certificate;
// the common name of its subject is the user.
func (g *Gate) byCertificate(r *http.Request, _ netip.Addr) (Identity, *Refusal) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || !validName(r.TLS.VerifiedChains[0][0].Subject.CommonName) {
		return Identity{}, noCertificate
	}
	return identityOf(g.o.Settings, r.TLS.VerifiedChains[0][0].Subject.CommonName), nil
}

// byProxy is the method of users whom a proxy knows. The proxy replaces the headers that a
// client sends; a header that is sent twice is not believed.
func (g *Gate) byProxy(r *http.Request, peer netip.Addr) (Identity, *Refusal) {
	if !isProxy(g.o.Settings, peer) { //mutant:any-proxy-believed
		return Identity{}, notProxy
	}
	names := r.Header.Values(g.o.Settings.UserHeader)
	if len(names) != 1 || !validName(names[0]) {
		return Identity{}, noUser
	}
	i := identityOf(g.o.Settings, names[0])
	if g.o.Settings.RoleHeader != "" {
		i.Role = Viewer
		if roles := r.Header.Values(g.o.Settings.RoleHeader); len(roles) == 1 && Role(roles[0]) == Operator {
			i.Role = Operator
		}
	}
	return i, nil
}

// identityOf returns a user, with the role by the list of operators.
func identityOf(s config.Console, name string) Identity {
	i := Identity{Name: name, Role: Viewer}
	if slices.Contains(s.Operators, name) {
		i.Role = Operator
	}
	return i
}

// maxName is the longest name of a user, in bytes.
const maxName = 200

// validName reports whether a name is shown and logged as it is.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && strings.TrimSpace(name) == name &&
		!strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
}
