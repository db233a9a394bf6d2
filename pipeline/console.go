package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/room"
)

// Console is the role that serves the web console. It shows what it finds, whichever servers answer,
// and so waits for none. AllRoles does not include it. Options.Console is required.
const Console Role = "console"

// ConsoleHost is what an App gives to its Options.Console.
type ConsoleHost struct {
	Config       func() *Config // the configuration in effect
	ConfigBroken func() error   // returns the error of the present TopicsFile; nil: the App has no TopicsFile
	TopicsFile   string         // its absolute path; "": the App has none
	Connections  Connections
	OwnStore     bool        // orders are closed by Options.Store, and not in the database of Connections
	Sweeps       bool        // the App runs the role Sweeper, which uses no Kafka
	Rooms        []room.Room // of the App
	// Sweep sweeps once; a dry run only counts. progress gets the report after each page, and may be
	// nil. Sweep is nil if the App cannot sweep.
	Sweep  func(ctx context.Context, dryRun bool, progress func(compensator.Report)) (compensator.Report, error)
	Logger *slog.Logger
}

// buildConsole does not require any server.
func (a *App) buildConsole() (part, error) {
	if a.o.Console == nil {
		return part{}, errors.New("Options.Console is not set: package webconsole makes it")
	}
	host := ConsoleHost{Config: a.config, Connections: a.conns, Rooms: a.o.Rooms, OwnStore: a.o.Store != nil, Sweeps: a.alone, Logger: a.o.Logger}
	if a.o.TopicsFile != "" {
		host.TopicsFile, _ = filepath.Abs(a.o.TopicsFile) // "" without a working directory
		host.ConfigBroken = func() error { _, err := Load(a.o.TopicsFile, a.o.Rooms...); return err }
	}
	if _, _, err := a.sweepOptions(); err == nil { // otherwise this process cannot sweep
		host.Sweep = a.sweepNow
	}
	run, err := a.o.Console(host)
	return part{Console, nil, run}, err
}

// sweepNow sweeps once, as orderclose compensate does.
func (a *App) sweepNow(ctx context.Context, dryRun bool, progress func(compensator.Report)) (compensator.Report, error) {
	c, err := a.Compensator(progress)
	if err != nil {
		return compensator.Report{}, err
	}
	return c.Sweep(ctx, dryRun)
}
