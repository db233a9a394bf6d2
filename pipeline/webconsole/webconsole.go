// Package webconsole adds the web console to a program that embeds the pipeline.
//
//	settings, err := webconsole.FromEnvironment(os.LookupEnv)
//	app, err := pipeline.New(pipeline.Options{
//		Console: webconsole.New(webconsole.Options{Settings: settings}), …
//	})
//	err = app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Console) // all roles of the process
//
// It is a package of its own: package pipeline does not link the console's templates, passwords and
// TLS.
package webconsole

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/pipeline"
)

// Settings say where the console listens, who may open it, and whether it may change anything.
// The zero value is the loopback, read-only. FromEnvironment reads them. App.Run refuses settings
// that would open the console to everybody: off the loopback it needs an identity, and TLS or Proxies;
// Actions need an identity everywhere. docs/security.md explains each setting. Printing or logging
// Settings shows no name of a file.
type Settings struct {
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

	// Runbook is the address of your own copy of the runbook, with the same anchors. "": the console's page
	// of the runbook.
	Runbook string

	// Prometheus is the address of a Prometheus, from which the history on Now comes then, such as
	// http://prometheus:9090?job=orderclose: the query has labels of the processes of this pipeline. "": from the console's own memory.
	Prometheus string `json:"-"`
}

// FromEnvironment reads the settings of the console from the variables that docs/security.md lists:
// ORDERCLOSE_CONSOLE_… and ORDERCLOSE_RUNBOOK_URL. lookup is os.LookupEnv. The error names each wrong variable, and shows
// no value.
func FromEnvironment(lookup func(string) (string, bool)) (Settings, error) {
	c, err := config.ConsoleFromEnviron(lookup)
	return Settings(c), err
}

// Format prints what is set, without secrets, for every verb.
func (s Settings) Format(f fmt.State, _ rune) { fmt.Fprint(f, config.Console(s)) }

// Options of a console. None is required.
type Options struct {
	Settings Settings
	Listener net.Listener // the console listens here, and closes it; default: a listener on Settings.Listen
	Version  string       // of the program, which the console shows
}

// New returns the Options.Console of an App, which serves the console as the role Console. Run returns an
// error if the settings are refused, or the listener fails.
func New(o Options) func(pipeline.ConsoleHost) (run func(context.Context) error, err error) {
	return func(host pipeline.ConsoleHost) (func(context.Context) error, error) {
		if o.Settings.Listen == "" {
			o.Settings.Listen = config.DefaultConsoleListen
		}
		servers := clients.Of(host.Connections)
		c, err := console.New(console.Options{
			Pipeline: ops.Pipeline{Kafka: servers.Kafka, Store: servers.Store, Redis: servers.Redis, OwnStore: host.OwnStore, WithoutKafka: host.Sweeps, Broken: host.ConfigBroken},
			Config:   host.Config, Sweep: host.Sweep, Settings: config.Console(o.Settings), Version: o.Version, Logger: host.Logger.With("stage", "console"), TopicsFile: host.TopicsFile,
		})
		if err != nil {
			return nil, fmt.Errorf("webconsole.Settings, whose fields are called as the variables ORDERCLOSE_CONSOLE_…: %w", err)
		}
		return func(ctx context.Context) error {
			defer c.Close()
			listener, scheme := o.Listener, "http"
			if listener == nil {
				if listener, err = net.Listen("tcp", o.Settings.Listen); err != nil {
					return fmt.Errorf("%w: set %s (webconsole.Settings.Listen) to another host:port", err, config.EnvConsoleListen)
				}
			}
			if t := c.TLS(); t != nil {
				listener, scheme = tls.NewListener(listener, t), "https"
			}
			host.Logger.Info("serving the console", "address", fmt.Sprintf("%s://%s%s/", scheme, listener.Addr(), o.Settings.BasePath), "actions", o.Settings.Actions)
			defer context.AfterFunc(ctx, c.Close)() // ends live updates, which never end by themselves
			return pipeline.ServeOn(ctx, listener, c.Handler(), host.Logger)
		}, nil
	}
}
