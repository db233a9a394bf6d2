// Package idfilter answers requests for orders that do not exist without a query: a Bloom filter
// of the ids of all orders, as a bitmap in Redis that all processes share.
//
//	err := filter.Create(ctx, id, func(check func(*shopdb.Tx) error) error { … })  // a checkout
//	if filter.Unknown(ctx, id) { … no order has this id … }                        // a read
//	filter.Run(ctx)                                                                // builds it
//
// The filter never calls an existing order unknown. A new id is in the bitmap before its order is
// committed, and therefore before the checkout answers. An id that is not there may be in the
// filter all the same, with a probability of Options.FalsePositives: the database then decides.
//
// Redis may lose the bitmap, or be out of reach for some processes only. A row in the database says
// whether the filter is complete. A process uses the filter only with a row that it has read within
// the last second (lease), and a checkout that cannot write the bitmap first marks the row, and then
// waits until no process can use the filter any more. After that, checkouts do not wait, and reads
// use the database, until Run has built a new bitmap.
//
//	idfilter.go   adding an id, and asking for an id
//	state.go      the row that says whether the filter is complete
//	build.go      builds the bitmap
//	bitmap.go     the bitmap in Redis
//
// Every program that inserts orders must add their ids. A Redis server that crashes may lose what
// it confirmed in its last moments, depending on its settings: for up to a second such an order may
// be called unknown, until the processes see that the server was restarted or replaced.
package idfilter

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/producer"
)

// Defaults of Options.
const (
	DefaultCapacity       = 1_000_000
	DefaultFalsePositives = 0.001
)

const (
	// lease is how long a process uses the filter after it asked for the row of its state.
	lease = time.Second
	// leaseMargin is for processes whose clocks do not run at the same speed.
	leaseMargin = 100 * time.Millisecond
	// redisTimeout bounds one call of Redis.
	redisTimeout = 250 * time.Millisecond
	// maxMoves is how often a checkout tries again because the filter was being built.
	maxMoves = 5
)

// Options configure a Filter. Redis, DB, Orders and Dialect are required.
type Options struct {
	Redis   redis.UniversalClient // one server, with or without replicas; not a Redis Cluster
	DB      *sql.DB
	Orders  *shopdb.Orders
	Dialect producer.Dialect
	// Prefix is put before the keys in Redis.
	Prefix string
	// Capacity is the number of ids for which the first bitmap is built; a full one is replaced
	// by one twice as large. Default DefaultCapacity, which needs 1.8 MB in Redis.
	Capacity int
	// FalsePositives is the share of unknown ids for which the database is asked, while the
	// filter is not full. Default DefaultFalsePositives.
	FalsePositives float64
	Logger         *slog.Logger // default: discard
}

// Filter is the filter of one process. Its methods are safe for concurrent use.
type Filter struct {
	o      Options
	reads  singleflight.Group
	mu     sync.Mutex
	latest state
	// changedAt is when this process first saw the latest state.
	changedAt time.Time
}

// New returns a Filter, or an error for missing options. It does not connect. CreateTables must
// have created its table.
func New(o Options) (*Filter, error) {
	if o.Redis == nil || o.DB == nil || o.Orders == nil || o.Dialect == "" {
		return nil, errors.New("idfilter: Options need Redis, DB, Orders and Dialect")
	}
	o.Capacity, o.FalsePositives = cmp.Or(o.Capacity, DefaultCapacity), cmp.Or(o.FalsePositives, DefaultFalsePositives)
	if o.Capacity < 1 || o.FalsePositives < 0 || o.FalsePositives >= 1 {
		return nil, fmt.Errorf("idfilter: capacity %d and false positives %v: want at least 1, and a share below 1", o.Capacity, o.FalsePositives)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Filter{o: o}, nil
}

// Unknown reports whether certainly no order has this id. It returns false if an order may have it,
// and whenever the filter cannot be used.
func (f *Filter) Unknown(ctx context.Context, id string) bool {
	s, err := f.state(ctx)
	if err != nil || !s.ready() {
		return false
	}
	found, intact, err := f.has(ctx, s, id)
	switch {
	case err != nil:
		return false
	case !intact:
		f.o.Logger.Warn("redis has lost the filter of order ids, it will be built again", "generation", s.generation)
		f.breakDown(ctx, s)
		return false
	}
	// The answer counts only if the state was still valid when Redis gave it.
	return !found && time.Since(s.asked) < lease
}

// errMoved says that the state of the filter has changed since the id was added.
var errMoved = errors.New("the filter of order ids has changed")

// Create adds an id, and then calls create, which creates the order in a transaction and must call
// check in it. When Create returns without an error, no process calls the id unknown any more. It
// calls create again if the filter was being built meanwhile. The error is that of create, or wraps
// orderclose.ErrUnavailable or orderclose.ErrContended.
func (f *Filter) Create(ctx context.Context, id string, create func(check func(*shopdb.Tx) error) error) error {
	for range maxMoves {
		s, err := f.state(ctx)
		if err != nil {
			return err
		}
		if s.phase != broken {
			err := f.add(ctx, s, id)
			if err != nil {
				err = f.add(ctx, s, id) // a new bitmap costs more than a second attempt
			}
			if err != nil {
				f.o.Logger.Warn("adding an order id to the filter failed, the filter is not used until it is built again", "err", err)
				if s, err = f.breakDown(ctx, s); err != nil {
					return err
				}
			}
		}
		err = create(func(t *shopdb.Tx) error { return f.unmoved(ctx, t, s) })
		if errors.Is(err, errMoved) {
			f.forget()
			continue
		}
		if err != nil || s.ready() {
			return err
		}
		return f.awaitLeases(ctx)
	}
	return fmt.Errorf("%w: %w", orderclose.ErrContended, errMoved)
}

// awaitLeases waits until no process can use the filter by a state that was ready.
func (f *Filter) awaitLeases(ctx context.Context) error {
	f.mu.Lock()
	wait := lease + leaseMargin - time.Since(f.changedAt)
	f.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	// The order is committed: its caller waits a moment longer, but gets its answer.
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return ctx.Err()
}
