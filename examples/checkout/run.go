package checkout

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/orderclose/orderclose/pipeline"
)

// RunOptions say where a running shop listens and where it reads events.
type RunOptions struct {
	Listener net.Listener
	Handler  http.Handler // default: Shop.Handler; set it to serve more paths
	// App, Group and Topic are the source of events; Group is the prefix of the readers' groups.
	// Without an App none are read.
	App          *pipeline.App
	Group, Topic string
}

// Run serves the shop, reads events, keeps caches right and deletes old rows until ctx ends. It returns when all of
// them have stopped. An error of one stops the others.
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
	if o.App != nil {
		running.Go(func() {
			defer cancel()
			reading = s.ReadEvents(ctx, o.App, o.Group, o.Topic)
		})
	}
	running.Go(func() { s.DeleteOldRows(ctx) })
	running.Go(func() { s.FollowChanges(ctx) })
	if s.o.Filter != nil {
		running.Go(func() { s.o.Filter.Run(ctx) })
	}
	running.Wait()
	return errors.Join(serving, reading)
}
