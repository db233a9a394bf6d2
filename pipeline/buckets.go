package pipeline

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
)

// bucketsRetryInterval is the interval between checks of the delay topics while some of them
// cannot be checked.
const bucketsRetryInterval = 5 * time.Second

// ActiveBuckets returns the buckets into which records are put now. An App whose roles put no records into buckets keeps those that
// it was made with.
func (a *App) ActiveBuckets() orderclose.Buckets { return *a.picked.Load() }

// keepBuckets keeps the buckets of the parts up to date with the configuration until ctx
// ends. Relays serve each bucket of the configuration as soon as its topic exists, and
// every other delay topic that still holds records of orderclose. The buckets that records are put into
// change later, and all at once; see config.Rollout.
func (a *App) keepBuckets(ctx context.Context, relaying bool) {
	m := &bucketManager{App: a, relaying: relaying, served: a.config().Buckets, stopRollout: func() {}}
	defer m.rollouts.Wait()
	defer func() { m.stopRollout() }()
	if !m.start(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.changed:
			m.startRollout(ctx)
		case bs := <-m.finished:
			if !slices.Equal(bs, m.ActiveBuckets()) {
				m.o.Logger.Info("using new buckets", "buckets", len(bs.Open()), "draining", len(bs)-len(bs.Open()))
			}
			m.picked.Store(&bs)
		}
		every := guardInterval
		if !m.updateServed(ctx) {
			every = bucketsRetryInterval
		}
		m.notify()
		timer.Reset(every)
	}
}

// bucketManager is the state of keepBuckets. It belongs to one goroutine.
type bucketManager struct {
	*App
	relaying    bool
	served      orderclose.Buckets // the buckets that the relay serves; unused without a relay
	lastWarning time.Time          // the last warning in the log

	rollouts    sync.WaitGroup
	finished    chan orderclose.Buckets // of the latest rollout: buckets that may now be used; capacity 1
	stopRollout context.CancelFunc
}

// startRollout starts a goroutine that waits until the configured buckets may be used. It first
// cancels the previous rollout.
func (m *bucketManager) startRollout(ctx context.Context) {
	m.stopRollout()
	ctx, m.stopRollout = context.WithCancel(ctx)
	wanted, finished := m.config().Buckets, make(chan orderclose.Buckets, 1)
	m.finished = finished
	delay := m.o.RolloutDelay
	if slices.Equal(wanted, m.ActiveBuckets()) {
		delay = 0
	}
	m.rollouts.Go(func() {
		if (config.Rollout{Buckets: wanted, Delay: delay, Exists: m.conns.Kafka.Exists, Logger: m.o.Logger}).Await(ctx) {
			finished <- wanted
		}
	})
}

// start selects the configured buckets whose topics exist. A process that is restarted
// between "bucket added to topics.yaml" and "topics apply" must not put records into the
// new bucket; that bucket is added as after a reload. If its topic exists already, the process
// uses the bucket at once. Relays that have not read the file yet serve it within a minute,
// because they list the topics, so short orders there may be a minute late. If no topic exists,
// start selects every bucket. It retries until Kafka answers, and returns false when ctx ends.
func (m *bucketManager) start(ctx context.Context) bool {
	pauses, answered := retry.NewBackOff(), time.Time{}
	for {
		there, unknown, err := m.existingBuckets(ctx)
		if err == nil && answered.IsZero() {
			answered = time.Now()
		}
		if err == nil && (unknown == nil || time.Since(answered) > bucketsRetryInterval) {
			if len(there.Open()) > 0 && len(there) < len(m.config().Buckets) {
				m.picked.Store(&there)
				m.startRollout(ctx)
			}
			m.notify()
			m.ready.waiting.remove(needBuckets)
			close(m.bucketsReady)
			return true
		}
		if !retry.Sleep(ctx, pauses.NextBackOff()) {
			return false
		}
	}
}

// existingBuckets returns the configured buckets whose topics exist. The error unknown means that
// some topics could not be checked. The error err means that Kafka does not answer at all.
func (m *bucketManager) existingBuckets(ctx context.Context) (there orderclose.Buckets, unknown, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := m.conns.Kafka.Ping(ctx); err != nil {
		return nil, nil, err
	}
	for _, b := range m.config().Buckets {
		switch err := m.exists(ctx, b.Topic); {
		case err == nil:
			there = append(there, b)
		case !errors.Is(err, errNoTopic):
			unknown = err
		}
	}
	return there, unknown, nil
}

// notify passes the buckets to all parts.
func (m *bucketManager) notify() {
	for _, notify := range m.subscribers {
		notify(m.served, m.ActiveBuckets())
	}
}

// updateServed updates the buckets to serve. It returns false if some topics could not be checked.
func (m *bucketManager) updateServed(ctx context.Context) bool {
	if !m.relaying {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	serve, err := m.bucketsToServe(ctx)
	m.served = serve
	if err != nil && ctx.Err() == nil && time.Since(m.lastWarning) >= warnInterval {
		m.lastWarning = time.Now()
		m.o.Logger.Warn("some delay topics cannot be checked", "err", err)
	}
	return err == nil
}

// bucketsToServe returns the buckets to serve: the buckets of the configuration, whose topics may
// not exist yet, and each other delay topic that holds records. A topic that cannot be
// checked does not remove the others: bucketsToServe then returns them with an error.
func (m *bucketManager) bucketsToServe(ctx context.Context) (serve orderclose.Buckets, err error) {
	c := m.config()
	serve = slices.Clone(c.Buckets)
	names, err := m.conns.Kafka.TopicNames(ctx, c.Topics.DelayPrefix())
	if err != nil {
		names = topicsOf(m.served) // other topics are unknown
	}
	for _, b := range ops.UnlistedBuckets(c, names) {
		if !slices.Contains(topicsOf(m.served), b.Topic) {
			holds, unknown := ops.WaitingUnlisted(ctx, m.conns.Kafka, c, b)
			if unknown != nil && !ops.AccessDenied(unknown) {
				err = errors.Join(err, unknown)
			}
			if unknown != nil || holds == 0 {
				continue
			}
			m.o.Logger.Warn("serving a delay topic that is not in topics.yaml: it still holds records", "topic", b.Topic, "records", holds)
		}
		serve = append(serve, b)
	}
	slices.SortFunc(serve, func(a, b orderclose.Bucket) int { return cmp.Compare(a.Length, b.Length) })
	return serve, err
}

func topicsOf(bs orderclose.Buckets) (names []string) {
	for _, b := range bs {
		names = append(names, b.Topic)
	}
	return names
}
