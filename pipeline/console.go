package pipeline

import (
	"context"
	"errors"
	"log/slog"

	"github.com/orderclose/orderclose/internal/config"
)

// Console is the role that serves the web console. It shows what it finds, whichever servers answer,
// and so waits for none. AllRoles does not include it. Options.Console is required.
const Console Role = "console"

// Host is what an App gives to its Options.Console, to package admin, and to a part that a program makes by itself.
type Host struct {
	Config       func() *Config // the configuration in effect
	ConfigBroken func() error   // returns the error of the present TopicsFile; nil: the App has no TopicsFile
	Connections  Connections
	OwnStore     bool // orders are closed by Options.Store, and not in the database of Connections
	Logger       *slog.Logger
	Life         context.Context // of the App: it ends with Close
}

// Host returns what the App has, whether it runs or not. App.Close closes the Connections, unless Options.Connections gave them.
func (a *App) Host() Host {
	host := Host{Config: a.config, Connections: a.conns, OwnStore: a.o.Store != nil, Logger: a.o.Logger, Life: a.life}
	if a.o.TopicsFile != "" {
		host.ConfigBroken = func() error { _, err := config.Load(a.o.TopicsFile, a.o.readOptions()...); return err }
	}
	return host
}

// buildConsole does not require any server.
func (a *App) buildConsole() (part, error) {
	if a.o.Console == nil {
		return part{}, errors.New("Options.Console is not set: package webconsole makes it")
	}
	run, err := a.o.Console(a.Host())
	return part{Console, nil, run}, err
}
