package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// Limits of the listener of metrics and health. A client sends a few hundred bytes and
// reads the answer at once. A slower client must not keep a connection, and with it a file
// descriptor.
const (
	maxHeaderBytes = 16 << 10
	headersWithin  = 5 * time.Second
	requestWithin  = 10 * time.Second // headers and body
	// answerWithin exceeds the 30 s that a CPU profile takes by default.
	answerWithin = 2 * time.Minute
	// idleWithin exceeds the usual minute between two scrapes.
	idleWithin = 3 * time.Minute
)

// Serve serves HTTP on the address listen, host:port, until ctx ends, and then returns nil. Requests in
// flight have one second to finish. The handler is usually App.Handler. Serve returns an error if the
// address cannot be used. A slow client is cut off: headers 5 s, request 10 s, answer 2 minutes.
func Serve(ctx context.Context, listen string, handler http.Handler, logger *slog.Logger) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("%w: listen on another host:port; of the command orderclose, set %s", err, config.EnvListen)
	}
	logger.Info("serving metrics and health", "address", "http://"+listener.Addr().String())
	return ServeOn(ctx, listener, handler, logger)
}

// ServeOn is Serve on a listener, which it closes. logger gets what net/http itself reports, such as TLS
// handshakes that fail.
func ServeOn(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Shutdown(ctx)
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended // the requests in flight
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", listener.Addr(), err)
	}
	return nil
}
