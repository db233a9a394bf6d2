package pipeline

import (
	"crypto/tls"
	"log/slog"
	"net/netip"

	"github.com/orderclose/orderclose/internal/config"
)

// Secrets sign the requests to the services of the shop that topics.yaml names. Each secret has at
// least 16 bytes; "openssl rand -hex 32" makes one. A request has a signature by each secret of its
// list, and a service accepts any of them, so that a secret can be replaced without a moment in
// which requests are refused. Printing or logging Secrets
// hides them.
type Secrets struct {
	HTTP    []string // for the service that closes orders (closer.kind: http); at least one is required then
	Payment []string // for the payment provider (closer.payment.url); at least one is required then
}

// String hides the secrets.
func (s Secrets) String() string { return config.Secrets(s).String() }

// GoString hides the secrets.
func (s Secrets) GoString() string { return s.String() }

// ConsoleSettings say where the console listens, who may open it, and whether it may change anything.
// The zero value is the loopback, read-only. ConsoleFromEnvironment reads them. Run refuses settings
// that would open the console to everybody: off the loopback it needs an identity, and TLS or Proxies;
// Actions need an identity everywhere. docs/console.md explains each setting. Printing or logging
// ConsoleSettings shows neither keys nor names of files.
type ConsoleSettings struct {
	Listen   string      // host:port; default 127.0.0.1:9465
	BasePath string      // such as /orderclose, without a slash at the end; "": the console has the whole host
	Hosts    []string    // names or addresses that the Host header may have besides that of Listen and the loopback's; no ports
	Actions  bool        // operators may change data; false: the console is read-only
	TLS      *tls.Config `json:"-"` // of the listener; nil: plain HTTP, for the loopback and the proxies only

	// Proxies are addresses that the user trusts: they terminate TLS, and set UserHeader.
	Proxies []netip.Prefix

	// The identity: at most one of these three is set. The files are read again when they change;
	// docs/console.md has their formats.
	TokensFile    string `json:"-"`
	PasswordsFile string `json:"-"`
	UserHeader    string // the header in which a proxy gives the name of the user

	// The operators among users with passwords or with UserHeader; all others are viewers. At most
	// one of both is set.
	RoleHeader string   // the header in which a proxy gives the role; needs UserHeader
	Operators  []string // names of users
}

// ConsoleFromEnvironment reads the settings of the console from the variables ORDERCLOSE_CONSOLE_…
// that docs/console.md lists. lookup is os.LookupEnv. The error names each wrong variable, and shows
// no value.
func ConsoleFromEnvironment(lookup func(string) (string, bool)) (ConsoleSettings, error) {
	c, err := config.ConsoleFromEnviron(lookup)
	return ConsoleSettings(c), err
}

// String says what is set, without secrets.
func (c ConsoleSettings) String() string { return config.Console(c).String() }

// GoString returns String, so that %#v shows no secret either.
func (c ConsoleSettings) GoString() string { return c.String() }

// LogValue returns String, for slog.
func (c ConsoleSettings) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Change is a setting of topics.yaml that a Reload has changed.
type Change struct {
	Key  string `json:"key"`  // as in the file, such as delays.categories.virtual or buckets.10s
	From string `json:"from"` // "" if the key was added
	To   string `json:"to"`   // "" if the key was removed
	// Live says that the change takes effect without a restart: a change of the buckets after
	// Options.RolloutDelay, any other change at once. If Live is false, the change takes effect
	// when the program starts again.
	Live bool `json:"live"`
}

// String describes the change in one line.
func (c Change) String() string { return config.Change(c).String() }
