// Package webconsole adds the web console to a program that embeds the pipeline.
//
//	settings, err := webconsole.FromEnvironment(os.LookupEnv)
//	app, err := pipeline.New(pipeline.Options{
//		Console: webconsole.New(webconsole.Options{Settings: settings}), …
//	})
//	err = app.Run(ctx, pipeline.Relay, pipeline.Closer, pipeline.Console) // all roles of the process
//
// It is a package of its own: package pipeline does not link the console's templates.
package webconsole

import (
	"context"
	"fmt"
	"net"

	"github.com/orderclose/orderclose/internal/console"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/pipeline"
)

// Settings say where the console listens, who may open it, and whether it may change anything.
// The zero value is the loopback, read-only. FromEnvironment reads them. App.Run refuses settings
// that would open the console to everybody: off the loopback it needs Proxies and a UserHeader, and operators need both everywhere. The
// fields are called as the variables: Listen, BasePath, UserHeader and Runbook are strings; Hosts and Operators are []string; Proxies is a
// []netip.Prefix. RoleHeader, a string, is the header that the variable of operators may name. docs/security.md explains each setting.
type Settings = environ.Console

// FromEnvironment reads the settings of the console from the variables that docs/security.md lists:
// ORDERCLOSE_CONSOLE_… and ORDERCLOSE_RUNBOOK_URL. lookup is os.LookupEnv. The error names each wrong variable, and shows
// no value.
func FromEnvironment(lookup func(string) (string, bool)) (Settings, error) {
	return environ.ReadConsole(lookup)
}

// Options of a console. None is required.
type Options struct {
	Settings Settings
	Listener net.Listener // the console listens here, and closes it; default: a listener on Settings.Listen
	Version  string       // of the program, which the console shows
}

// New returns the Options.Console of an App, which serves the console as the role Console. Run returns an
// error if the settings are refused, or the listener fails.
func New(o Options) func(pipeline.Host) (run func(context.Context) error, err error) {
	return func(host pipeline.Host) (func(context.Context) error, error) {
		if o.Settings.Listen == "" {
			o.Settings.Listen = environ.DefaultConsoleListen
		}
		servers := host.Connections
		c, err := console.New(console.Options{
			Pipeline: ops.Pipeline{
				Kafka: servers.Kafka, Store: servers.Store, Redis: servers.Redis, OwnStore: host.OwnStore,
				Broken: host.ConfigBroken,
			},
			Config: host.Config, Settings: o.Settings, Version: o.Version, Logger: host.Logger.With("stage", "console"),
		})
		if err != nil {
			return nil, fmt.Errorf("webconsole.Settings, whose fields are called as the variables ORDERCLOSE_CONSOLE_…: %w", err)
		}
		return func(ctx context.Context) error {
			defer c.Close()
			listener := o.Listener
			if listener == nil {
				if listener, err = net.Listen("tcp", o.Settings.Listen); err != nil {
					return fmt.Errorf("%w: set %s (webconsole.Settings.Listen) to another host:port", err, environ.EnvConsoleListen)
				}
			}
			host.Logger.Info("serving the console", "address", "http://"+listener.Addr().String()+o.Settings.BasePath+"/", "read_only", o.Settings.ReadOnly())
			defer context.AfterFunc(ctx, c.Close)() // ends actions that are being carried out
			return pipeline.ServeOn(ctx, listener, c.Handler(), host.Logger)
		}, nil
	}
}
