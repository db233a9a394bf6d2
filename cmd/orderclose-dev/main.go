// Command orderclose-dev runs the pipeline on embedded servers, for development; see
// orderclose-dev help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"orderclose/internal/cli"
	"orderclose/internal/cli/dev"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := dev.Main(ctx, cli.OSEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}
