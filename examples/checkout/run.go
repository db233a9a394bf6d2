package checkout

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// RunOptions say what a running shop listens and reads on.
type RunOptions struct {
	Listener net.Listener
	Handler  http.Handler // default: the shop's; for one who serves more beside it
	// Log, Group and Topic are where events are read. Without a Log none are.
	Log          Log
	Group, Topic string
}

// Run serves the shop, reads events and tidies up until ctx ends, and returns when
// all of it has stopped. An error of one part stops the others.
func (s *Shop) Run(ctx context.Context, o RunOptions) error {
	if o.Handler == nil {
		o.Handler = s.Handler()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var serving, reading error
	running.Go(func() {
		defer cancel()
		serving = Serve(ctx, o.Listener, o.Handler)
	})
	if o.Log != nil {
		running.Go(func() {
			defer cancel()
			reading = s.ReadEvents(ctx, o.Log, o.Group, o.Topic)
		})
	}
	running.Go(func() { s.Tidy(ctx) })
	running.Wait()
	return errors.Join(serving, reading)
}
