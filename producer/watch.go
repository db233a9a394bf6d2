package producer

import (
	"context"
	"errors"
	"sync"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/reload"
)

// watcher applies changes of the topics file to a Producer.
type watcher struct {
	reloader *reload.Reloader
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// watch prepares reloads of the file, and starts to watch it if Options.Watch is set.
func (p *Producer) watch(given Options, file *config.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	p.watcher = &watcher{cancel: cancel, reloader: reload.New(reload.Options{
		File: given.TopicsFile, Running: file, Logger: p.o.Logger,
		Apply: func(next *config.Config) {
			o := given
			o.setFrom(next)
			p.live.Store(&rules{delays: o.Delays, maxDelay: o.MaxDelay, buckets: o.Buckets})
		},
	})}
	if given.Watch {
		p.watcher.running.Go(func() { p.watcher.reloader.Run(ctx) })
	}
}

func (w *watcher) close() {
	if w != nil {
		w.cancel()
		w.running.Wait()
	}
}

// Reload reads TopicsFile and applies it to calls that begin later. Call it if Watch is not set. The error
// names each mistake in the file with its line; then nothing has changed. Do not call
// Reload after Close. Changed names of topics take effect at the next start.
func (p *Producer) Reload(ctx context.Context) error {
	if p.watcher == nil {
		return errors.New("producer: there is no TopicsFile to reload")
	}
	_, err := p.watcher.reloader.Reload(ctx)
	return err
}
