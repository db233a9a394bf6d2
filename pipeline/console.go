package pipeline

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console"
)

// Console is the role that serves the web console. It shows what it finds, whichever servers answer,
// and so waits for none. AllRoles does not include it.
const Console Role = "console"

// buildConsole does not require any server.
func (a *App) buildConsole() (part, error) {
	o := console.Options{
		Config: a.config, Kafka: a.conns.Kafka, Store: a.conns.Store,
		Settings: config.Console(a.o.Console), Version: a.o.Version, Logger: a.o.Logger.With("stage", "console"),
	}
	if o.Settings.Listen == "" {
		o.Settings.Listen = config.DefaultConsoleListen
	}
	if a.o.TopicsFile != "" {
		o.ConfigBroken = func() error { _, err := config.Load(a.o.TopicsFile); return err }
	}
	if a.conns.Redis != nil {
		if _, _, err := a.sweepOptions(); err == nil { // otherwise this process cannot sweep
			o.Sweep = a.sweepNow
		}
	}
	c, err := console.New(o)
	if err != nil {
		return part{}, fmt.Errorf("Options.Console, whose fields are called as the variables ORDERCLOSE_CONSOLE_…: %w", err)
	}
	return part{Console, nil, func(ctx context.Context) error {
		defer c.Close()
		listener := a.o.ConsoleListener
		if listener == nil {
			if listener, err = net.Listen("tcp", o.Settings.Listen); err != nil {
				return fmt.Errorf("%w: set %s (Options.Console.Listen) to another host:port", err, config.EnvConsoleListen)
			}
		}
		scheme := "http"
		if t := c.TLS(); t != nil {
			listener, scheme = tls.NewListener(listener, t), "https"
		}
		a.o.Logger.Info("serving the console", "address", fmt.Sprintf("%s://%s%s/", scheme, listener.Addr(), o.Settings.BasePath), "actions", o.Settings.Actions)
		defer context.AfterFunc(ctx, c.Close)() // ends live updates, which never end by themselves
		return serveOn(ctx, listener, c.Handler(), a.o.Logger)
	}}, nil
}

// sweepNow sweeps once, as orderclose compensate --once does.
func (a *App) sweepNow(ctx context.Context, dryRun bool, progress func(compensator.Report)) (compensator.Report, error) {
	c, err := a.Compensator(progress)
	if err != nil {
		return compensator.Report{}, err
	}
	return c.Sweep(ctx, dryRun)
}
