package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/partition"
	"orderclose/internal/reload"
)

// bucketsEvery is how often the delay topics are asked for while not all of them can be
// looked at.
const bucketsEvery = 5 * time.Second

// Picked are the buckets that records are put into now.
func (a *App) Picked() orderclose.Buckets { return *a.picked.Load() }

// keepBuckets keeps the buckets of what runs as the configuration says, until what
// it returns is called. Relays serve what is listed as soon as its topic is there,
// and each delay topic beside that still holds records. What is picked changes
// later, and as a whole; see reload.Adoption.
func (a *App) keepBuckets(ctx context.Context, roles []Role) (stop func()) {
	if a.o.Kafka == nil || !slices.ContainsFunc(roles, picks) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &keeper{App: a, relaying: slices.Contains(roles, Relay), served: a.config().Buckets, adopted: make(chan adopted), stopAdopting: func() {}}
	var keeping sync.WaitGroup
	keeping.Go(func() { k.run(ctx) })
	return func() { cancel(); keeping.Wait() }
}

// picks says whether a part puts records into buckets: a compensator does after a loss.
func picks(r Role) bool { return r == Relay || r == Closer || r == Outbox || r == Compensator }

// keeper is the state of keepBuckets; it belongs to one goroutine.
type keeper struct {
	*App
	relaying bool
	served   orderclose.Buckets // by the relay, if there is one
	told     time.Time          // when the log was last told of trouble

	adopting     sync.WaitGroup
	adopted      chan adopted
	turn         int // of the list that is waited for
	stopAdopting context.CancelFunc
}

// adopted is a list that may be picked from by now.
type adopted struct {
	buckets orderclose.Buckets
	turn    int
}

func (k *keeper) run(ctx context.Context) {
	defer k.adopting.Wait()
	defer func() { k.stopAdopting() }()
	if !k.begin(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.changed:
			k.adopt(ctx)
		case a := <-k.adopted:
			if a.turn != k.turn { // it came as it was forgotten
				continue
			}
			bs := a.buckets
			if !slices.Equal(bs, k.Picked()) {
				k.o.Logger.Info("the buckets are picked from", "buckets", len(bs.Open()), "draining", len(bs)-len(bs.Open()))
			}
			k.picked.Store(&bs)
		}
		every := guardEvery
		if !k.serve(ctx) {
			every = bucketsEvery
		}
		k.change()
		timer.Reset(every)
	}
}

// adopt begins to wait until the buckets that are configured may be picked from. A
// list that was waited for before is forgotten.
func (k *keeper) adopt(ctx context.Context) {
	k.stopAdopting()
	ctx, k.stopAdopting = context.WithCancel(ctx)
	k.turn++
	wanted, turn := k.config().Buckets, k.turn
	settle := k.o.Settle
	if slices.Equal(wanted, k.Picked()) {
		settle = 0
	}
	k.adopting.Go(func() {
		if (reload.Adoption{Buckets: wanted, Settle: settle, Exists: k.o.Kafka.Exists, Logger: k.o.Logger}).Await(ctx) {
			select {
			case k.adopted <- adopted{wanted, turn}:
			case <-ctx.Done():
			}
		}
	})
}

// begin picks those of the configured buckets whose topics exist: a process that is
// restarted between "bucket added to topics.yaml" and "topics apply" must not put records
// into the new bucket. That one is picked as after a reload. With no topic at all every
// bucket is picked. It asks until Kafka answers, and returns false when ctx ends.
func (k *keeper) begin(ctx context.Context) bool {
	pauses, answered := partition.NewBackOff(), time.Time{}
	for {
		there, unknown, err := k.existing(ctx)
		if err == nil && answered.IsZero() {
			answered = time.Now()
		}
		if err == nil && (unknown == nil || time.Since(answered) > bucketsEvery) {
			if len(there.Open()) > 0 && len(there) < len(k.config().Buckets) {
				k.picked.Store(&there)
				k.adopt(ctx)
			}
			k.change()
			close(k.begun)
			return true
		}
		if !partition.Sleep(ctx, pauses.NextBackOff()) {
			return false
		}
	}
}

// existing are the configured buckets whose topics exist. unknown says that Kafka does not
// tell of some; err, that Kafka does not answer at all.
func (k *keeper) existing(ctx context.Context) (there orderclose.Buckets, unknown, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := k.o.Kafka.Ping(ctx); err != nil {
		return nil, nil, err
	}
	for _, b := range k.config().Buckets {
		switch err := k.exists(ctx, b.Topic); {
		case err == nil:
			there = append(there, b)
		case !errors.Is(err, errNoTopic):
			unknown = err
		}
	}
	return there, unknown, nil
}

// change tells the parts what is to be served and picked.
func (k *keeper) change() {
	for _, change := range k.pickers {
		change(k.served, k.Picked())
	}
}

// serve finds out what is to be served, and whether that is known.
func (k *keeper) serve(ctx context.Context) bool {
	if !k.relaying {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	serve, err := k.toServe(ctx)
	k.served = serve
	if err != nil && ctx.Err() == nil && time.Since(k.told) >= complainEvery {
		k.told = time.Now()
		k.o.Logger.Warn("not every delay topic can be looked at", "err", err)
	}
	return err == nil
}

// toServe returns what is to be served as far as it is known: the buckets of the
// configuration, whose topics relays take up as they appear, and each other delay topic
// that holds records. One topic that cannot be looked at keeps none of the others from
// being served.
func (k *keeper) toServe(ctx context.Context) (serve orderclose.Buckets, err error) {
	c := k.config()
	serve = slices.Clone(c.Buckets)
	names, err := k.o.Kafka.TopicNames(ctx, c.Topics.DelayPrefix())
	if err != nil {
		names = topicsOf(k.served) // nothing is known of others
	}
	for _, b := range unlisted(c, names) {
		if !slices.Contains(topicsOf(k.served), b.Topic) {
			holds, unknown := k.o.Kafka.Holds(ctx, c.RelayGroup(b), b.Topic)
			if unknown != nil && !mayNotLook(unknown) {
				err = errors.Join(err, unknown)
			}
			if unknown != nil || holds == 0 {
				continue
			}
			k.o.Logger.Warn("serving a delay topic that topics.yaml does not list: it still holds records", "topic", b.Topic, "records", holds)
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
