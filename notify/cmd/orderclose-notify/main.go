// Command orderclose-notify sends Alertmanager's alerts to DingTalk robots, and to providers of SMS and
// calls. docs/alerting.md says how to configure it.
//
//	orderclose-notify --notify-config notify.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/notify/internal/notify"
)

const usage = `usage: orderclose-notify [--notify-config notify.yaml] [--quiet] [--debug] [--log-format json]

Sends Alertmanager's alerts to DingTalk robots, and to providers of SMS and calls, until SIGTERM.
notify.yaml names the receivers. Alertmanager posts to /alert/RECEIVER on ` + config.EnvListen + `
(default ` + config.DefaultListen + `), where /metrics, /-/healthy and /-/ready are served too. It gets 200
only when the provider accepted the message, 503 if a retry may help, and another status if a
person must fix something. It needs no other server: no Kafka, no database and no topics.yaml.
Exit codes: 0 stopped, 1 failed, 2 usage.
`

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stderr))
}

// run is the command. It returns the exit code when ctx ends.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stderr io.Writer) int {
	flags := flag.NewFlagSet("orderclose-notify", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	file, format := flags.String("notify-config", "notify.yaml", ""), flags.String("log-format", "", "")
	quiet, debug := flags.Bool("quiet", false, ""), flags.Bool("debug", false, "")
	fails := func(code int, err error) int {
		fmt.Fprintln(stderr, "orderclose-notify:", err)
		return code
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		return fails(exitUsage, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0)))
	}
	level := slog.LevelInfo
	switch {
	case *quiet:
		level = slog.LevelError
	case *debug:
		level = slog.LevelDebug
	}
	handler, err := config.LogHandler(stderr, *format, lookup, &slog.HandlerOptions{Level: level})
	if err != nil {
		return fails(exitUsage, err)
	}
	logger := slog.New(handler)
	servers, err := config.FromEnviron(lookup, config.EnvListen)
	if err != nil {
		return fails(exitUsage, err)
	}
	c, err := notify.LoadConfig(*file)
	if err != nil {
		return fails(exitUsage, err)
	}
	n, err := notify.New(notify.Options{Config: c, Logger: logger})
	if err != nil {
		return fails(exitUsage, err)
	}
	if err := serve(ctx, servers.Listen, n.Handler(), logger); err != nil {
		return fails(exitFailed, err)
	}
	return 0
}

// Limits of the HTTP server. A message is sent within ten seconds.
const (
	headersWithin  = 5 * time.Second
	requestWithin  = 10 * time.Second // headers and body
	answerWithin   = 30 * time.Second // from the end of the headers
	idleWithin     = 3 * time.Minute
	maxHeaderBytes = 16 << 10
	stopWithin     = time.Second // for messages that are being sent
)

// serve serves on an address until ctx ends.
func serve(ctx context.Context, listen string, handler http.Handler, logger *slog.Logger) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("%w: set %s to another host:port", err, config.EnvListen)
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("serving alerts, metrics and health", "address", "http://"+listener.Addr().String())
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	err = server.Serve(listener)
	if stop() {
		return err
	}
	<-stopped
	return nil
}
