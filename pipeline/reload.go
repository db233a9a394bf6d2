package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/obs"
)

// newReloader returns the reloader of topics.yaml.
func (a *App) newReloader() (*config.Reloader, error) {
	return config.NewReloader(config.ReloadOptions{
		File: a.o.TopicsFile, Running: a.o.Config,
		Validate: func(ctx context.Context, next *config.Config) error {
			if a.o.Kafka == nil {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			return checkRemovals(ctx, a.o.Kafka, a.config(), next, a.clock.Now())
		},
		Apply:   a.apply,
		Hangup:  a.o.Hangup,
		Metrics: a.metrics,
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
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Reload reads topics.yaml and applies it. It returns the changes. If the file is not
// accepted, it returns the error and changes nothing.
func (a *App) Reload(ctx context.Context) ([]config.Change, error) {
	if a.reloader == nil {
		return nil, errors.New("this process was started without a topics.yaml: it cannot reload")
	}
	return a.reloader.Reload(ctx)
}

// watch reloads topics.yaml whenever it changes, until stop is called.
func (a *App) watch(ctx context.Context) (stop func()) {
	if a.reloader == nil || !a.o.Watch {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { a.reloader.Run(ctx) })
	return func() { cancel(); watching.Wait() }
}

// Handler serves metrics, health, POST /-/reload and, if profiles is set, profiles.
func (a *App) Handler(profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", obs.Handler(a.o.Registry, &a.ready, profiles))
	mux.HandleFunc("POST /-/reload", a.serveReload)
	return mux
}

// serveReload answers 200 with the changes, or 400 with the problems, one per line.
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
	}
	for _, c := range changes {
		fmt.Fprintln(w, c)
	}
}

// minIdle is added to a bucket's length. The topic must have been unused for that long
// before the bucket may be removed. No producer that has not read the new file runs longer.
const minIdle = 24 * time.Hour

// checkRemovals refuses a configuration in which a bucket is missing whose topic is in use.
func checkRemovals(ctx context.Context, k *kafka.Cluster, running, next *config.Config, now time.Time) error {
	for _, b := range config.Removed(running.Buckets, next.Buckets) {
		there, err := k.Exists(ctx, b.Topic)
		if err != nil {
			return fmt.Errorf("bucket %s: check whether it may be removed: %w", config.FormatDuration(b.Length), err)
		}
		if !there {
			continue
		}
		use, err := inUse(ctx, k, running.RelayGroup(b), b, now)
		if accessDenied(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("bucket %s: check whether it may be removed: %w", config.FormatDuration(b.Length), err)
		}
		if use != "" {
			return fmt.Errorf("bucket %s is missing, and its topic %s %s; keep it as {length: %[1]s, draining: true} until it has been empty for its length and a day",
				config.FormatDuration(b.Length), b.Topic, use)
		}
	}
	return nil
}

// accessDenied reports whether err says that access is denied. A closer with a user of its
// own may have no access to the relays' commits. Then the relays refuse the configuration,
// and they serve the remaining records in any case.
func accessDenied(err error) bool {
	var access *kafka.AccessError
	return errors.As(err, &access)
}

// inUse returns why a bucket may not be removed yet, or "" if it may. Kafka has all the
// facts, so no state is kept.
func inUse(ctx context.Context, k *kafka.Cluster, group string, b orderclose.Bucket, now time.Time) (string, error) {
	holds, err := k.WaitingIn(ctx, group, b.Topic)
	if err != nil {
		return "", err
	}
	if holds > 0 {
		return fmt.Sprintf("still holds %d records", holds), nil
	}
	since := now.Add(-b.Length - minIdle)
	used, err := k.UsedSince(ctx, b.Topic, since)
	if used {
		return "was used since " + since.UTC().Format(time.RFC3339), err
	}
	return "", err
}

// Unlisted returns findings for the delay topics that are in use and have no bucket in the
// configuration.
func Unlisted(ctx context.Context, k *kafka.Cluster, c *config.Config, now time.Time) ([]kafka.Finding, error) {
	names, err := k.TopicNames(ctx, c.Topics.DelayPrefix())
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var findings []kafka.Finding
	for _, b := range unlisted(c, names) {
		use, err := inUse(ctx, k, c.RelayGroup(b), b, now)
		if accessDenied(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if use != "" {
			findings = append(findings, kafka.Finding{
				Topic: b.Topic, What: "has no bucket in topics.yaml and " + use,
				Fix: fmt.Sprintf("list it as {length: %s, draining: true} until it has been empty for its length and a day", config.FormatDuration(b.Length)),
			})
		}
	}
	return findings, nil
}

// unlisted returns the buckets of those topics that are named like delay topics and have
// no bucket in the configuration. It is a pure function.
func unlisted(c *config.Config, names []string) orderclose.Buckets {
	var others orderclose.Buckets
	for _, name := range names {
		b, ok := c.Topics.BucketOf(name)
		if ok && !slices.ContainsFunc(c.Buckets, func(o orderclose.Bucket) bool { return o.Topic == name }) {
			b.Draining = true
			others = append(others, b)
		}
	}
	return others
}
