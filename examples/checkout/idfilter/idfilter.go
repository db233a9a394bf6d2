// Package idfilter answers reads of ids that no order has without a query: a Bloom filter of the ids of
// all orders, as a bitmap in Redis that all processes share.
//
//	filter.Run(ctx)                  // from the start of a process: fills it
//	filter.Add(ctx, id)              // before the transaction that creates the order
//	if filter.Unknown(ctx, id) { … } // no order has this id
//
// An id whose bits are not all set has no order. While the filter is filled, after Redis has lost it, and
// while Redis does not answer, no id is unknown: the database decides. The database also gets about one in a
// thousand of the ids that no order has. Bits are only set, so several processes may add and fill at once.
//
// Behind the bitmap are two marks: of the fill that began last, and of the last complete one. The
// filter is complete if they are the same. If Redis loses the bitmap, it loses the marks too.
//
// Every program that inserts orders must add their ids. If one process cannot reach Redis, the others do
// not find its new orders until it can, and fills the filter again. Redis must not lose a part of
// what it has confirmed: after such a crash delete the key, or start a process.
package idfilter

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/redis/go-redis/v9"
)

const (
	defaultCapacity = 1_000_000 // 1.8 MB in Redis
	falsePositives  = 0.001
	// checkoutLimit is longer than the time from an Add to the end of its transaction.
	checkoutLimit = 25 * time.Second
	// redisTimeout bounds one call of Redis.
	redisTimeout = time.Second
	// markSize is the length of a mark, a text of rand.Text.
	markSize = 26
)

// Options configure a Filter. Redis, DB and Logger are required.
type Options struct {
	Redis    redis.UniversalClient
	DB       *sql.DB // of the orders
	Prefix   string  // before the key in Redis
	Capacity int     // expected number of orders; more of them cost more queries. Default 1,000,000
	Logger   *slog.Logger
}

// Filter is the filter of one process. Its methods are safe for concurrent use.
type Filter struct {
	o      Options
	key    string
	bits   uint64      // of the bitmap, without the marks
	hashes uint        // bits of an id
	missed atomic.Bool // an id could not be added: Run must fill the filter again
}

// New returns a Filter, or an error for missing options. It does not connect.
func New(o Options) (*Filter, error) {
	if o.Redis == nil || o.DB == nil || o.Logger == nil || o.Capacity < 0 {
		return nil, errors.New("idfilter: Options need Redis, DB and Logger, and no negative Capacity")
	}
	bits, hashes := bloom.EstimateParameters(uint(cmp.Or(o.Capacity, defaultCapacity)), falsePositives)
	bits = (bits + 7) / 8 * 8
	return &Filter{o: o, key: fmt.Sprintf("%s{ids:%d}", o.Prefix, bits), bits: uint64(bits), hashes: hashes}, nil
}

// Add adds the id of a new order. After a failure it does not call Redis until Run has begun to fill the filter again.
func (f *Filter) Add(ctx context.Context, id string) {
	if f.missed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	_, err := f.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, l := range bloom.Locations([]byte(id), f.hashes) {
			p.SetBit(ctx, f.key, int64(l%f.bits), 1)
		}
		return nil
	})
	if err != nil {
		f.missed.Store(true)
		f.o.Logger.Warn("adding an order id to the filter failed, will fill the filter again", "order", id, "err", err)
	}
}

// Unknown reports whether no order has this id. It returns false if an order may have it, and whenever the filter cannot be used.
func (f *Filter) Unknown(ctx context.Context, id string) bool {
	if f.missed.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	var bits []*redis.IntCmd
	var marks *redis.StringCmd
	_, err := f.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, l := range bloom.Locations([]byte(id), f.hashes) {
			bits = append(bits, p.GetBit(ctx, f.key, int64(l%f.bits)))
		}
		marks = p.GetRange(ctx, f.key, int64(f.bits/8), -1)
		return nil
	})
	if m := marks.Val(); err != nil || len(m) != 2*markSize || m[:markSize] != m[markSize:] {
		return false
	}
	return slices.ContainsFunc(bits, func(bit *redis.IntCmd) bool { return bit.Val() == 0 })
}

// Run fills the filter, and fills it again after an id could not be added, until ctx ends. Each process runs it.
func (f *Filter) Run(ctx context.Context) {
	for filled := false; ctx.Err() == nil; sleep(ctx, time.Second) {
		if filled && !f.missed.Load() {
			continue
		}
		err := f.fill(ctx)
		if filled = err == nil; !filled && ctx.Err() == nil {
			f.o.Logger.Warn("filling the filter of order ids failed, will retry, reads ask the database", "err", err)
		}
	}
}

// fill adds the ids of all orders. It does not complete the filter if Redis has lost the bitmap, or if another process has begun since.
func (f *Filter) fill(ctx context.Context) error {
	begun := int64(f.bits / 8)
	mark := rand.Text()
	if err := f.o.Redis.SetRange(ctx, f.key, begun, mark).Err(); err != nil {
		return err
	}
	f.missed.Store(false)
	// The bits of checkouts under way may be lost. Their orders are in the database after that.
	sleep(ctx, checkoutLimit)
	rows, err := f.o.DB.QueryContext(ctx, "SELECT id FROM orders")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	bitmap := make([]byte, f.bits/8)
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		for _, l := range bloom.Locations([]byte(id), f.hashes) {
			bitmap[l%f.bits/8] |= 0x80 >> (l % f.bits % 8) // Redis counts from the highest bit of a byte
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	_, err = f.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, f.key+mark, bitmap, time.Minute)
		p.BitOpOr(ctx, f.key, f.key, f.key+mark)
		p.Del(ctx, f.key+mark)
		return nil
	})
	if err != nil {
		return err
	}
	if latest, err := f.o.Redis.GetRange(ctx, f.key, begun, begun+markSize-1).Result(); err != nil || latest != mark {
		return err
	}
	return f.o.Redis.SetRange(ctx, f.key, begun+markSize, mark).Err()
}

// sleep sleeps, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
