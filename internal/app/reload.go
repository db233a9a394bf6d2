package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/obs"
	"orderclose/internal/reload"
)

// newReloader makes what takes up a changed topics.yaml.
func (a *App) newReloader() (*reload.Reloader, error) {
	return reload.New(reload.Options{
		File: a.o.TopicsFile, Running: a.o.Config,
		May: func(ctx context.Context, next *config.Config) error {
			if a.o.Kafka == nil {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			return mayRemove(ctx, a.o.Kafka, a.config(), next, a.clock.Now())
		},
		Take:    a.take,
		Hangup:  a.o.Hangup,
		Metrics: a.metrics,
		Logger:  a.o.Logger,
	})
}

// config is what holds now: of what a part was built from, what is live may have
// changed since.
func (a *App) config() *config.Config { return a.live.Load() }

// take lets a configuration hold. The topics are compared with it from now on; the
// buckets go their way in keepBuckets.
func (a *App) take(next *config.Config) {
	a.live.Store(next)
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Reload reads topics.yaml and takes what it says. It returns what has changed; or
// why the file was not taken, and then nothing has.
func (a *App) Reload(ctx context.Context) ([]reload.Change, error) {
	if a.reloader == nil {
		return nil, errors.New("this process was started without a topics.yaml: there is nothing to reload")
	}
	return a.reloader.Reload(ctx)
}

// watch keeps the app as the file says until what it returns is called.
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

// serveReload answers 200 with what has changed, or 400 with what is wrong, line by
// line.
func (a *App) serveReload(w http.ResponseWriter, r *http.Request) {
	changes, err := a.Reload(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		for _, problem := range reload.Problems(err) {
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

// idleDay is added to a bucket's length: for so long its topic must have been left
// alone before the bucket may go, which is longer than any producer that has not
// heard of it goes on.
const idleDay = 24 * time.Hour

// mayRemove refuses a configuration that lacks a bucket whose topic is in use.
func mayRemove(ctx context.Context, k *kafka.Cluster, running, next *config.Config, now time.Time) error {
	for _, b := range reload.Removed(running.Buckets, next.Buckets) {
		there, err := k.Exists(ctx, b.Topic)
		if err != nil {
			return fmt.Errorf("bucket %s: whether it may go cannot be told: %w", config.FormatDuration(b.Length), err)
		}
		if !there {
			continue
		}
		use, err := inUse(ctx, k, running.RelayGroup(b), b, now)
		if mayNotLook(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("bucket %s: whether it may go cannot be told: %w", config.FormatDuration(b.Length), err)
		}
		if use != "" {
			return fmt.Errorf("bucket %s is missing, and its topic %s %s; keep it as {length: %[1]s, draining: true} until it has been empty for its length and a day",
				config.FormatDuration(b.Length), b.Topic, use)
		}
	}
	return nil
}

// mayNotLook: with a user of its own a closer may have no access to what relays
// have committed. Then it is theirs to refuse, and they serve what is left in any
// case.
func mayNotLook(err error) bool {
	var access *kafka.AccessError
	return errors.As(err, &access)
}

// inUse says why a bucket may not go yet, and nothing if it may: Kafka knows, and
// nobody has to remember anything.
func inUse(ctx context.Context, k *kafka.Cluster, group string, b orderclose.Bucket, now time.Time) (string, error) {
	holds, err := k.Holds(ctx, group, b.Topic)
	if err != nil {
		return "", err
	}
	if holds > 0 {
		return fmt.Sprintf("still holds %d records", holds), nil
	}
	since := now.Add(-b.Length - idleDay)
	used, err := k.UsedSince(ctx, b.Topic, since)
	if used {
		return "was used since " + since.UTC().Format(time.RFC3339), err
	}
	return "", err
}

// Unlisted are findings of the delay topics that are in use although the
// configuration has no such bucket.
func Unlisted(ctx context.Context, k *kafka.Cluster, c *config.Config, now time.Time) ([]kafka.Finding, error) {
	names, err := k.TopicNames(ctx, c.Topics.DelayPrefix())
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var findings []kafka.Finding
	for _, b := range unlisted(c, names) {
		use, err := inUse(ctx, k, c.RelayGroup(b), b, now)
		if mayNotLook(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if use != "" {
			findings = append(findings, kafka.Finding{
				Topic: b.Topic, What: "is of no bucket in topics.yaml and " + use,
				Mend: fmt.Sprintf("list it as {length: %s, draining: true} until it has been empty for its length and a day", config.FormatDuration(b.Length)),
			})
		}
	}
	return findings, nil
}

// unlisted are the buckets of those topics that are none of the configuration's,
// though they have names such as it gives. Pure.
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
