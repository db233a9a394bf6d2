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
	Name    string     // "" on the loopback if the console has no identity
	Role    Role       // "" if From finds no identity
	Address netip.Addr // of the connection: that of the client, or of its proxy
	MayAct  bool       // the user is an operator, and actions are on
}

// visit is what the context of a request has after Wrap.
type visit struct {
	identity Identity
	api      bool // the request is one of the JSON API
}

type visitKey struct{}

// From returns the user of a request that passed Gate.Wrap. It returns the zero Identity on
// public paths, and for a refused request whose user is not known.
func From(ctx context.Context) Identity {
	v, _ := ctx.Value(visitKey{}).(visit)
	return v.identity
}

func (g *Gate) identityOf(u user, peer netip.Addr) Identity {
	return Identity{
		Name: u.name, Role: u.role, Address: peer,
		MayAct: g.o.Settings.Actions && u.role == Operator,
	}
}

// nobody is the method of a console on the loopback without identity: all users of the machine
// are viewers.
type nobody struct{}

func (nobody) identify(_ *http.Request, peer netip.Addr) (user, *Refusal) {
	if !peer.IsLoopback() { // whatever the listener is: nobody is known there
		return user{}, refused(NoTLS)
	}
	return user{role: Viewer}, nil
}

// roleOf returns the role of a user by the list of operators.
func roleOf(s config.Console, name string) Role {
	if slices.Contains(s.Operators, name) {
		return Operator
	}
	return Viewer
}

// maxName is the longest name of a user, in bytes.
const maxName = 200

// validName reports whether a name is shown and logged as it is.
func validName(name string) bool {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name {
		return false
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}
