package pipeline

import (
	"fmt"
	"net/netip"

	"github.com/orderclose/orderclose/internal/config"
)

// Secrets sign the requests to the services of the shop that topics.yaml names. Each secret has at
// least 16 bytes; "openssl rand -hex 32" makes one. A request has a signature by each secret of its
// list, and a service accepts any of them, so that a secret can be replaced without a moment in
// which requests are refused. Printing or logging Secrets
// hides them.
type Secrets struct {
	HTTP    []string `json:"-"` // for the service that closes orders; required by closer.kind: http
	Payment []string `json:"-"` // for the payment provider; required by closer.payment.url
}

// Format hides the secrets, for every verb.
func (s Secrets) Format(f fmt.State, _ rune) { fmt.Fprint(f, config.Secrets(s)) }

// ConsoleSettings say where the console listens, who may open it, and whether it may change anything.
// The zero value is the loopback, read-only. ConsoleFromEnvironment reads them. Run refuses settings
// that would open the console to everybody: off the loopback it needs an identity, and TLS or Proxies;
// Actions need an identity everywhere. docs/console.md explains each setting. Printing or logging
// ConsoleSettings shows no name of a file.
type ConsoleSettings struct {
	Listen   string   // host:port; default 127.0.0.1:9465
	BasePath string   // such as /orderclose, without a slash at the end; "": the console has the whole host
	Hosts    []string // names or addresses that the Host header may have besides that of Listen and the loopback's; no ports
	Actions  bool     // operators may change data; false: the console is read-only

	// WebConfigFile is a web configuration file of Prometheus: TLS, users with passwords, client
	// certificates. It is read again when it changes. "": plain HTTP, for the loopback and the proxies only.
	WebConfigFile string `json:"-"`

	// Proxies are addresses that the user trusts: they terminate TLS, and set UserHeader.
	Proxies []netip.Prefix

	// UserHeader is the header in which a proxy gives the name of the user. Then WebConfigFile has no
	// users with passwords.
	UserHeader string

	// The operators; all other users are viewers. At most one of both is set.
	RoleHeader string   // the header in which a proxy gives the role; needs UserHeader
	Operators  []string // names of users; of a user with a client certificate, the common name of its subject
}

// ConsoleFromEnvironment reads the settings of the console from the variables ORDERCLOSE_CONSOLE_…
// that docs/console.md lists. lookup is os.LookupEnv. The error names each wrong variable, and shows
// no value.
func ConsoleFromEnvironment(lookup func(string) (string, bool)) (ConsoleSettings, error) {
	c, err := config.ConsoleFromEnviron(lookup)
	return ConsoleSettings(c), err
}

// Format prints what is set, without secrets, for every verb.
func (c ConsoleSettings) Format(f fmt.State, _ rune) { fmt.Fprint(f, config.Console(c)) }

// Change is a setting of topics.yaml that a Reload has changed. Key is as in the file, such as
// buckets.10s; From and To are the values, "" if the key was added or removed. If Live is true, the
// change takes effect now, or after Options.RolloutDelay if it is one of the buckets; otherwise when the
// program starts again. String describes it in one line.
type Change = config.Change
