// Command embed runs the pipeline inside a program of its own. It is a module of its own, which
// imports nothing internal.
//
//	main.go        runs both, one after the other
//	bookings.go    a Store of the program's own, on embedded servers
//	shop.go        the SQL store beside the program's *sql.DB, with a payment provider; needs
//	               ORDERCLOSE_KAFKA_BROKERS and ORDERCLOSE_DB_DSN
//	operator.go    an operator of the shop, who pauses, looks at an order, and resumes
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/orderclose/orderclose/pipeline"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	err := closeBookings(ctx, logger)
	env, envErr := pipeline.FromEnvironment()
	switch {
	case envErr != nil:
		err = errors.Join(err, envErr)
	case len(env.Servers.Brokers) == 0 || env.Servers.DSN == "":
		fmt.Println("set ORDERCLOSE_KAFKA_BROKERS and ORDERCLOSE_DB_DSN to see the shop")
	default:
		err = errors.Join(err, closeShop(ctx, env.Servers, logger))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// runUntil runs roles of an App, and calls seen when they run. It stops them when seen returns.
func runUntil(ctx context.Context, app *pipeline.App, roles []pipeline.Role, seen func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running, roles...) }()
	err := app.WaitReady(ctx)
	if err == nil {
		err = seen(ctx)
	}
	stop()
	return errors.Join(err, <-ended)
}
