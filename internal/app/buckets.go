package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/reload"
)

// bucketsEvery is how often the topics of buckets are asked for that are not there
// yet, or while Kafka is away.
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
		for _, change := range k.pickers {
			change(k.served, k.Picked(), k.config().MaxDelay)
		}
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

// serve finds out what is to be served, and whether that is known and all there.
func (k *keeper) serve(ctx context.Context) bool {
	if !k.relaying {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	serve, missing, err := k.toServe(ctx)
	if serve != nil {
		k.served = serve
	}
	if (err != nil || len(missing) > 0) && ctx.Err() == nil && time.Since(k.told) >= complainEvery {
		k.told = time.Now()
		if err != nil {
			k.o.Logger.Warn("not every delay topic can be looked at", "err", err)
		} else {
			k.o.Logger.Warn("waiting for the topics of new buckets: run orderclose topics apply", "missing", missing)
		}
	}
	return err == nil && len(missing) == 0
}

// toServe returns what is to be served as far as it is known, nil if nothing is. One
// topic that cannot be looked at keeps none of the others from being served.
func (k *keeper) toServe(ctx context.Context) (serve orderclose.Buckets, missing []string, err error) {
	names, err := k.o.Kafka.TopicNames(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := func(topic string) bool {
		return slices.ContainsFunc(k.served, func(b orderclose.Bucket) bool { return b.Topic == topic })
	}
	c := k.config()
	for _, b := range c.Buckets {
		there := before(b.Topic) || slices.Contains(names, b.Topic)
		if !there { // or we may not see it in the list
			var unknown error
			if there, unknown = k.o.Kafka.Exists(ctx, b.Topic); unknown != nil {
				err = errors.Join(err, unknown)
				continue
			}
		}
		if there {
			serve = append(serve, b)
		} else {
			missing = append(missing, b.Topic)
		}
	}
	for _, b := range unlisted(c, names) {
		if !before(b.Topic) {
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
	return serve, missing, err
}
