package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/idfilter"
	"github.com/orderclose/orderclose/examples/checkout/ordercache"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/producer"
)

const (
	// shopProcesses is the number of shops that share the reads.
	shopProcesses = 2
	shopWorkers   = 16 // of both; enough that a slow read does not delay the next
	// readsPerChange is the number of reads for each order that is cancelled.
	readsPerChange = 100
	// readSkew is the exponent of the Zipf distribution of the orders that are read.
	readSkew = 1.1
	// filterSeen is longer than a process takes to notice that the filter is ready.
	filterSeen = 1500 * time.Millisecond
	// unknownReads is the number of ids that no order has.
	unknownReads = 10_000
)

// shopSide is a way to answer reads.
type shopSide struct {
	name                    string
	redis, cached, filtered bool
}

var shopSides = []shopSide{
	{name: "database"},
	{name: "redis", redis: true},
	{name: "local", redis: true, cached: true, filtered: true},
}

// shopReads is what reads did in one turn.
type shopReads struct {
	reads   int
	took    measure.Spread
	sources map[string]int64
	selects int64 // queries of the database
}

// readCounts are checkout.Metrics that count reads.
type readCounts struct {
	mu      sync.Mutex
	sources map[string]int64
}

func (c *readCounts) Unscheduled()               {}
func (c *readCounts) Touched(orderclose.Verdict) {}
func (c *readCounts) Event(string, string)       {}

func (c *readCounts) Read(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[source]++
}

// shopBench is a shop with its servers.
type shopBench struct {
	*shop
	redis    *redis.Client
	producer *producer.Producer
	prefix   string // of keys in Redis
	orders   int
}

// openRedis connects to the Redis that the environment names.
func openRedis() (*redis.Client, error) {
	servers, err := config.FromEnviron(os.LookupEnv)
	if err == nil {
		err = servers.Require(config.EnvRedis)
	}
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(servers.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("%s is not valid", config.EnvRedis) // the error quotes the URL
	}
	return redis.NewClient(o), nil
}

// open returns the processes of a side. stop ends what keeps them right.
func (b *shopBench) open(ctx context.Context, side shopSide, counts *readCounts, prefix string) (shops []*checkout.Shop, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	orders := shopdb.New(shopdb.Options{DB: b.db, Dialect: producer.MySQL})
	for range shopProcesses {
		o := checkout.Options{DB: b.db, Dialect: producer.MySQL, Producer: b.producer, Record: scenario.RecordOf(b.store), Closer: b.store,
			ViewPrefix: prefix, Metrics: counts}
		if side.redis {
			o.Redis = b.redis
		}
		if side.cached {
			o.CacheSize = ordercache.DefaultSize
		}
		if side.filtered {
			if o.Filter, err = idfilter.New(idfilter.Options{Redis: b.redis, DB: b.db, Orders: orders, Dialect: producer.MySQL, Prefix: prefix}); err != nil {
				return nil, stop, err
			}
			running.Go(func() { o.Filter.Run(ctx) })
		}
		shop, err := checkout.New(o)
		if err != nil {
			return nil, stop, err
		}
		running.Go(func() { shop.FollowChanges(ctx) })
		shops = append(shops, shop)
	}
	if side.filtered {
		err = b.awaitFilter(ctx, prefix)
	}
	return shops, stop, err
}

// awaitFilter breaks the filter that another turn has left, and waits for a new one.
func (b *shopBench) awaitFilter(ctx context.Context, prefix string) error {
	if err := b.exec(ctx, "UPDATE checkout_id_filter SET phase = 'broken', beat = 0 WHERE id = 1"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	err := process.Await(ctx, func(ctx context.Context) error {
		var phase string
		err := b.db.QueryRowContext(ctx, "SELECT phase FROM checkout_id_filter WHERE id = 1").Scan(&phase)
		if err == nil && phase != "ready" {
			err = fmt.Errorf("the filter %s is %s", prefix, phase)
		}
		return err
	})
	sleep(ctx, filterSeen)
	return err
}

// selects returns how many queries the server has run.
func (b *shopBench) selects(ctx context.Context) (n int64, err error) {
	var name string
	err = b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_select'").Scan(&name, &n)
	return n, err
}

// measure reads orders by all processes at an even rate for a while, and cancels some of them.
func (b *shopBench) measure(ctx context.Context, side shopSide, round, rate int, spell time.Duration) (shopReads, error) {
	counts := &readCounts{sources: map[string]int64{}}
	shops, stop, err := b.open(ctx, side, counts, fmt.Sprintf("%s%s%d:", b.prefix, side.name, round))
	defer stop()
	if err != nil {
		return shopReads{}, err
	}
	// Caches fill first; the same orders are popular in each turn.
	if _, err := b.read(ctx, shops, rate, warmUpReads(spell)); err != nil {
		return shopReads{}, err
	}
	counts.mu.Lock()
	clear(counts.sources)
	counts.mu.Unlock()
	before, err := b.selects(ctx)
	if err != nil {
		return shopReads{}, err
	}
	took, err := b.read(ctx, shops, rate, spell)
	after, failed := b.selects(ctx)
	if err := errors.Join(err, failed); err != nil {
		return shopReads{}, err
	}
	counts.mu.Lock()
	defer counts.mu.Unlock()
	return shopReads{len(took), measure.SpreadOf(took), counts.sources, after - before}, nil
}

// warmUpReads is how long a turn lasts that does not count.
func warmUpReads(spell time.Duration) time.Duration { return min(spell, 10*time.Second) }

// read reads orders at an even rate. Each read is timed from its planned start.
func (b *shopBench) read(ctx context.Context, shops []*checkout.Shop, rate int, spell time.Duration) ([]time.Duration, error) {
	popular := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), readSkew, 1, uint64(b.orders-1))
	orders := make([]string, int(spell.Seconds()*float64(rate)))
	for n := range orders {
		orders[n] = idOf(int(popular.Uint64()) * 7919 % b.orders)
	}
	took, err := evenly(ctx, rate, len(orders), shopWorkers, func(worker, number int, from time.Time) (time.Time, error) {
		shop := shops[worker%len(shops)]
		if number%readsPerChange == 0 {
			// Any order, so that popular orders go on changing now and then.
			_, err := shop.Do(ctx, checkout.Request{}, idOf(rand.IntN(b.orders)), checkout.Cancel)
			if refusal := (*checkout.Refusal)(nil); err != nil && !errors.As(err, &refusal) {
				return from, err
			}
			from = time.Now() // the change before this read does not count for it
		}
		_, err := shop.Get(ctx, orders[number])
		return from, err
	})
	return took, cmp.Or(err, ctx.Err())
}

// unknown reads ids that no order has, and returns how many queries that took.
func (b *shopBench) unknown(ctx context.Context, side shopSide) (selects int64, took []time.Duration, err error) {
	counts := &readCounts{sources: map[string]int64{}}
	shops, stop, err := b.open(ctx, side, counts, b.prefix+"unknown:"+side.name+":")
	defer stop()
	if err != nil {
		return 0, nil, err
	}
	before, err := b.selects(ctx)
	if err != nil {
		return 0, nil, err
	}
	for i := range unknownReads {
		begin := time.Now()
		if _, err := shops[i%len(shops)].Get(ctx, fmt.Sprintf("unknown-%d-%d", i, rand.Uint64())); !errors.Is(err, shopdb.ErrNoOrder) {
			return 0, nil, fmt.Errorf("an unknown id: %w", err)
		}
		took = append(took, time.Since(begin))
	}
	after, err := b.selects(ctx)
	return after - before, took, err
}
