package producer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/reload"
)

// Topics is what an Appender may be able to tell beside: the Producer's own
// connection is one. Without it a changed list of buckets is believed to have its
// topics.
type Topics interface {
	// Exists says whether there is such a topic.
	Exists(ctx context.Context, topic string) (bool, error)
}

// watcher takes up changes of the topics file for a Producer.
type watcher struct {
	p        *Producer
	given    Options // what the file does not set
	reloader *reload.Reloader

	ctx     context.Context // until close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex         // held by who changes the rules
	stop context.CancelFunc // ends the wait for the buckets of an earlier file
}

// watch prepares for changes of the file, and begins to watch it if that is wanted.
func (p *Producer) watch(given Options, file *config.Config) error {
	w := &watcher{p: p, given: given, stop: func() {}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	var err error
	if w.reloader, err = reload.New(reload.Options{File: given.TopicsFile, Running: file, Take: w.take, Logger: p.o.Logger}); err != nil {
		return err
	}
	p.watcher = w
	w.running.Go(w.begin)
	if given.Watch {
		w.running.Go(func() { w.reloader.Run(w.ctx) })
	}
	return nil
}

// askEvery is how often Kafka is asked which topics there are, until it answers.
const askEvery = 5 * time.Second

// begin picks only those of the first buckets whose topics exist: a checkout that is
// restarted between "bucket added to topics.yaml" and "topics apply" must not fail to
// schedule. The missing bucket is picked as after a reload. If no topic exists, or nobody
// can say, all buckets are picked.
func (w *watcher) begin() {
	topics, ok := w.p.o.Appender.(Topics)
	if !ok {
		return
	}
	wanted := w.p.live.Load().buckets
	there, err := existing(w.ctx, topics, wanted)
	for timer := time.NewTimer(askEvery); err != nil; timer.Reset(askEvery) {
		select {
		case <-w.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
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

// existing are the buckets whose topics exist.
func existing(ctx context.Context, topics Topics, buckets orderclose.Buckets) (there orderclose.Buckets, err error) {
	for _, b := range buckets {
		ok, err := topics.Exists(ctx, b.Topic)
		if err != nil {
			return nil, err
		}
		if ok {
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

// Reload reads TopicsFile and takes up what it says, for whoever does not Watch it.
// An error says what is wrong with the file, line by line; then nothing has changed.
// Reload must not be called after Close.
//
// Delays and their maximum hold for the calls that begin after it. A changed list of
// buckets is picked from when the relays have had Settle to read it too, and all its
// topics exist; until then the one before is, with a warning. Names of topics hold
// from the next start on.
func (p *Producer) Reload(ctx context.Context) error {
	if p.watcher == nil {
		return errors.New("producer: there is no TopicsFile to reload")
	}
	_, err := p.watcher.reloader.Reload(ctx)
	return err
}

// take is called with each configuration that is to hold.
func (w *watcher) take(next *config.Config) {
	o := w.given
	o.setFrom(next)
	if o.Delays.Default == 0 {
		o.Delays.Default = DefaultDelay
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	picked := w.p.live.Load().buckets
	w.p.live.Store(&rules{delays: o.Delays, maxDelay: o.MaxDelay, buckets: picked})
	if !slices.Equal(o.Buckets, picked) {
		w.await(o.Buckets)
	}
}

// await begins to wait until buckets may be picked. The caller holds mu.
func (w *watcher) await(buckets orderclose.Buckets) {
	a := reload.Adoption{Buckets: buckets, Settle: w.settle(), Logger: w.p.o.Logger}
	if topics, ok := w.p.o.Appender.(Topics); ok {
		a.Exists = topics.Exists
	}
	ctx, stop := context.WithCancel(w.ctx)
	w.stop = stop
	w.running.Go(func() { w.adopt(ctx, a) })
}

func (w *watcher) settle() time.Duration {
	return cmp.Or(w.given.Settle, reload.DefaultSettle)
}

// adopt lets buckets be picked from when it is time.
func (w *watcher) adopt(ctx context.Context, a reload.Adoption) {
	if !a.Await(ctx) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // another file was taken meanwhile
	}
	changed := *w.p.live.Load()
	changed.buckets = a.Buckets
	w.p.live.Store(&changed)
	w.p.o.Logger.Info("the buckets have changed", "open", len(a.Buckets.Open()))
}
