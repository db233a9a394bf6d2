package checkout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Limits of the views in Redis.
const (
	viewTTL = 24 * time.Hour
	// dueMargin is how long before its due time an unpaid order is no longer shown from the
	// view: the shop's estimate of the database's clock may be off by the duration of one query.
	dueMargin = time.Second
	// redisTimeout bounds one call of Redis; the database is faster than that.
	redisTimeout = 250 * time.Millisecond
	// redisPause is how long Redis is not used after a failed call.
	redisPause = time.Second
)

// viewChannel is the suffix of the channel on which processes announce changed orders to each other.
const viewChannel = "changed"

// views stores a hash per order in Redis: its status and due time, its version, and when it was
// read from the database. It is written after each change, and an older version never replaces a
// newer one. Whatever happens to Redis, an order that can still change is shown from its view
// for at most maxStale after it was read from the database, and no order is shown unpaid past
// its due time.
type views struct {
	client   redis.UniversalClient // nil: there are no views
	prefix   string
	maxStale time.Duration
	failed   func(error)
	pause    pause
}

// putScript writes a view unless Redis has a newer one. It announces the order if the caller has
// changed the order, or if Redis had an older one: a change that was missed.
var putScript = redis.NewScript(`
local version, read = unpack(redis.call('HMGET', KEYS[1], 'version', 'read'))
if version and (tonumber(version) > tonumber(ARGV[1])
    or tonumber(version) == tonumber(ARGV[1]) and tonumber(read or 0) > tonumber(ARGV[2])) then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'read', ARGV[2], 'status', ARGV[3],
  'due', ARGV[4], 'created', ARGV[5], 'category', ARGV[6])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
if ARGV[8] == '1' or version and tonumber(version) < tonumber(ARGV[1]) then
  redis.call('PUBLISH', ARGV[9], ARGV[10])
end
return 1`)

// dropScript replaces a view by the newer version of its order, so that no older view is written
// any more, and announces the order.
var dropScript = redis.NewScript(`
local version = redis.call('HGET', KEYS[1], 'version')
if version and tonumber(version) >= tonumber(ARGV[1]) then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'version', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1`)

func (v *views) key(id string) string { return v.prefix + id }

// channel returns the name of the channel. No id begins with a space, so no view has this name.
func (v *views) channel() string { return v.prefix + " " + viewChannel }

// put writes the view of an order. changed says that this process has just changed the order.
func (v *views) put(ctx context.Context, o shopdb.View, changed bool) {
	announce := 0
	if changed {
		announce = 1
	}
	v.call(ctx, func(ctx context.Context) error {
		return putScript.Run(ctx, v.client, []string{v.key(o.ID)},
			o.Version, o.At.UnixMilli(), int(o.Status), o.Due.UnixMilli(), o.CreatedAt.UnixMilli(), o.Category,
			viewTTL.Milliseconds(), announce, v.channel(), o.ID).Err()
	})
}

// drop says that an order has reached a version. The next read takes its view from the database.
func (v *views) drop(ctx context.Context, id string, version int64) {
	v.call(ctx, func(ctx context.Context) error {
		return dropScript.Run(ctx, v.client, []string{v.key(id)},
			version, viewTTL.Milliseconds(), v.channel(), id).Err()
	})
}

// get returns the view of an order if it may be shown at now, by the database's clock.
func (v *views) get(ctx context.Context, id string, now time.Time) (o shopdb.View, ok bool) {
	var hash map[string]string
	v.call(ctx, func(ctx context.Context) (err error) {
		hash, err = v.client.HGetAll(ctx, v.key(id)).Result()
		return err
	})
	if len(hash) == 0 {
		return o, false
	}
	o, err := decodeView(id, hash)
	if err != nil {
		return o, false // another program's hash: the database is read, and the view is written again
	}
	return o, usable(o, now, v.maxStale)
}

func decodeView(id string, hash map[string]string) (o shopdb.View, err error) {
	number := func(field string) int64 {
		n, e := strconv.ParseInt(hash[field], 10, 64)
		err = errors.Join(err, e)
		return n
	}
	o.Order = orderclose.Order{ID: id, Category: hash["category"],
		CreatedAt: time.UnixMilli(number("created")).UTC(), Due: time.UnixMilli(number("due")).UTC()}
	o.Status, o.Version, o.At = shopdb.Status(number("status")), number("version"), time.UnixMilli(number("read")).UTC()
	return o, err
}

// usable decides whether a view may be shown at now. The view of an order in a final state may
// always be shown. Any other view may be shown for maxStale after it was read from the database,
// and the view of an unpaid order only until dueMargin before its due time. Pure.
func usable(o shopdb.View, now time.Time, maxStale time.Duration) bool {
	if State(o.Status.String()).Final() {
		return true
	}
	age := now.Sub(o.At)
	if age > maxStale || age < -maxStale {
		return false
	}
	return o.Status != shopdb.Unpaid || now.Add(dueMargin).Before(o.Due)
}

// call calls Redis unless Redis is paused. An error is logged once for each pause, and does not
// fail the request.
func (v *views) call(ctx context.Context, f func(context.Context) error) {
	if v.client == nil || v.pause.on() {
		return
	}
	// A change is committed by now: its view must be written even if the caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	if err := f(ctx); err != nil && !errors.Is(err, redis.Nil) {
		v.pause.begin(redisPause)
		v.failed(fmt.Errorf("redis: %w", err))
	}
}

// pause is a period in which something is not tried. Safe for concurrent use.
type pause struct{ until atomic.Int64 }

func (p *pause) begin(d time.Duration) { p.until.Store(time.Now().Add(d).UnixNano()) }
func (p *pause) on() bool              { return time.Now().UnixNano() < p.until.Load() }
