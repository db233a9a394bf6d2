package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/reload"
)

// newReloader returns the reloader of topics.yaml.
func (a *App) newReloader() *reload.Reloader {
	return reload.New(reload.Options{
		File: a.o.TopicsFile, Running: a.o.Config, ReadOptions: a.o.readOptions(),
		Apply:   a.apply,
		Hangup:  a.o.Hangup,
		Checked: a.metrics.ConfigReloaded,
		Logger:  a.o.Logger,
	})
}

// config returns the configuration in effect. Its live settings may differ from the
// configuration that a part was built with.
func (a *App) config() *config.Config { return a.live.Load() }

// apply makes next the configuration in effect. The next check of the topics uses it;
// keepBuckets applies its buckets.
func (a *App) apply(next *config.Config) {
	a.live.Store(next)
	a.metrics.Delays(next.Delays)
	if a.conns.Store != nil {
		a.conns.Store.UseDelays(next.Delays)
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Reload reads TopicsFile and applies it. It returns the changes. If the file is not accepted, or
// there is no TopicsFile, it returns an error and changes nothing. The error names each mistake with
// its line.
func (a *App) Reload(ctx context.Context) ([]Change, error) {
	if a.reloader == nil {
		return nil, errors.New("this process was started without a topics.yaml (Options.TopicsFile): it cannot reload")
	}
	return a.reloader.Reload(ctx)
}

// serveReload answers 200 with the changes, or 400 with the problems, one in each line.
func (a *App) serveReload(w http.ResponseWriter, r *http.Request) {
	changes, err := a.Reload(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		for _, problem := range config.SplitProblems(err) {
			fmt.Fprintln(w, problem)
		}
		return
	}
	if len(changes) == 0 {
		fmt.Fprintln(w, "nothing has changed")
	} else if a.config().ByRule() {
		fmt.Fprintln(w, "orders are due by rule: if a delay has changed, run orderclose migrate with this file; until then no order is closed")
	}
	for _, c := range changes {
		fmt.Fprintln(w, c)
	}
}
