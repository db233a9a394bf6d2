package producer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/retry"
)

// Topics is an optional interface of an Appender, for this module only. The Producer's own connection
// implements it. Without it the Producer assumes that the topics of a changed list of
// buckets exist.
type Topics interface {
	// Exists reports whether the topic exists.
	Exists(ctx context.Context, topic string) (bool, error)
}

// watcher applies changes of the topics file to a Producer.
type watcher struct {
	p        *Producer
	given    Options // the options before the file filled them in
	reloader *config.Reloader

	ctx     context.Context // ends at close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex         // protects changes of the rules
	stop context.CancelFunc // ends the wait for the buckets of an earlier file
}

// watch prepares reloads of the file, and starts to watch it if Options.Watch is set.
func (p *Producer) watch(given Options, file *config.Config) {
	w := &watcher{p: p, given: given, stop: func() {}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.reloader = config.NewReloader(config.ReloadOptions{
		File: given.TopicsFile, Running: file, Rooms: []config.AnySection{config.OtherRooms()}, Apply: w.apply, Logger: p.o.Logger,
	})
	p.watcher = w
	w.running.Go(w.useExistingBuckets)
	if given.Watch {
		w.running.Go(func() { w.reloader.Run(w.ctx) })
	}
}

// topicsInterval is how often Kafka is asked for the existing topics until it answers.
const topicsInterval = 5 * time.Second

// useExistingBuckets uses only those of the initial buckets whose topics exist. A checkout that is
// restarted between "bucket added to topics.yaml" and "topics apply" must not fail to
// schedule. The missing buckets are used later, as after a reload. All buckets
// are used if no topic exists, and until Kafka answers.
func (w *watcher) useExistingBuckets() {
	topics, ok := w.p.o.Appender.(Topics)
	if !ok {
		return
	}
	wanted := w.p.live.Load().buckets
	there, err := existing(w.ctx, topics, wanted)
	for err != nil {
		if !retry.Sleep(w.ctx, topicsInterval) {
			return
		}
		there, err = existing(w.ctx, topics, wanted)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := *w.p.live.Load()
	if len(there) == len(wanted) || len(there.Open()) == 0 || !slices.Equal(now.buckets, wanted) {
		return
	}
	now.buckets = there
	w.p.live.Store(&now)
	w.await(wanted)
}

// existing returns the buckets whose topics exist.
func existing(ctx context.Context, topics Topics, buckets orderclose.Buckets) (there orderclose.Buckets, err error) {
	for _, b := range buckets {
		ok, err := topics.Exists(ctx, b.Topic)
		if err != nil {
			return nil, err
		}
		if ok { //mutant:bucket-without-topic
			there = append(there, b)
		}
	}
	return there, nil
}

func (w *watcher) close() {
	if w == nil {
		return
	}
	w.cancel()
	w.running.Wait()
}

// Reload reads TopicsFile and applies it. Call it if Watch is not set. The error
// names each mistake in the file with its line; then nothing has changed. Do not call
// Reload after Close.
//
// New delays and a new maximum apply to calls that begin later. A changed list of
// buckets is used once RolloutDelay has passed, so that the relays have read it too,
// and all its topics exist. Until then the previous list is used, with a warning in the
// log. Changed names of topics take effect at the next start.
func (p *Producer) Reload(ctx context.Context) error {
	if p.watcher == nil {
		return errors.New("producer: there is no TopicsFile to reload")
	}
	_, err := p.watcher.reloader.Reload(ctx)
	return err
}

// apply applies a configuration that was read.
func (w *watcher) apply(next *config.Config) {
	o := w.given
	o.setFrom(next)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	picked := w.p.live.Load().buckets
	w.p.live.Store(&rules{delays: o.Delays, maxDelay: o.MaxDelay, buckets: picked})
	if !slices.Equal(o.Buckets, picked) {
		w.await(o.Buckets)
	}
}

// await starts to wait until buckets may be used. The caller holds mu.
func (w *watcher) await(buckets orderclose.Buckets) {
	rollout := config.Rollout{Buckets: buckets, Delay: cmp.Or(w.given.RolloutDelay, config.DefaultRolloutDelay), Logger: w.p.o.Logger}
	if topics, ok := w.p.o.Appender.(Topics); ok {
		rollout.Exists = topics.Exists
	}
	ctx, stop := context.WithCancel(w.ctx)
	w.stop = stop
	w.running.Go(func() { w.rollOut(ctx, rollout) })
}

// rollOut waits until the buckets may be used, and then uses them.
func (w *watcher) rollOut(ctx context.Context, rollout config.Rollout) {
	if !rollout.Await(ctx) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // a newer file was applied meanwhile
	}
	changed := *w.p.live.Load()
	changed.buckets = rollout.Buckets
	w.p.live.Store(&changed)
	w.p.o.Logger.Info("buckets changed", "open", len(rollout.Buckets.Open()))
}
