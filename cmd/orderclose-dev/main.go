// Command orderclose-dev runs the pipeline on embedded servers, for development. The command
// demo runs the pipeline for half a minute and checks it; serve runs a shop with the pipeline
// until it is stopped.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/orderclose/orderclose/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, cli.OSEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}
