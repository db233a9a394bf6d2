// Command orderclose runs the pipeline in production; see orderclose help.
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
	code := cli.Main(ctx, cli.OSEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}
