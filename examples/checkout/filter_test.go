package checkout_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/idfilter"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// filtered returns a shop of another process with its filter, which is complete when filtered returns if Redis answers.
func (r *rig) filtered(client redis.UniversalClient, db *sql.DB) *checkout.Shop {
	r.t.Helper()
	f, err := idfilter.New(idfilter.Options{Redis: client, DB: r.world.DB(), Prefix: "checkout:", Capacity: 20_000, Logger: slog.New(slog.DiscardHandler)})
	r.must(err)
	r.onStop(testkit.Start(r.t, func(ctx context.Context) error { f.Run(ctx); return nil }))
	time.Sleep(30 * time.Second)
	return r.newShop(func(o *checkout.Options) { o.Filter, o.DB = f, db })
}

// order creates an order through a shop of its own process. No view in Redis answers for it.
func (r *rig) order(shop *checkout.Shop, id string) {
	r.t.Helper()
	_, err := shop.Create(r.t.Context(), checkout.Request{}, checkout.Basket{ID: id, Customer: "ann", Category: "virtual",
		Items: []checkout.Line{{SKU: "ink", Quantity: 1}}})
	r.must(err)
	r.world.Redis.Del(viewOf + id)
}

// found checks that a shop finds an order.
func (r *rig) found(what string, shop *checkout.Shop, id string) {
	r.t.Helper()
	_, err := shop.Get(r.t.Context(), id)
	expect.That(r.t, err == nil, "%s: %s: %v", what, id, err)
}

// asked returns how many of a hundred reads of unknown ids ask the database.
func (r *rig) asked(shop *checkout.Shop) int {
	before := r.metric("checkout_reads_total", checkout.FromDatabase)
	for i := range 100 {
		_, err := shop.Get(r.t.Context(), fmt.Sprintf("unknown-%d", i))
		expect.That(r.t, errors.Is(err, shopdb.ErrNoOrder) || errors.Is(err, orderclose.ErrUnavailable), "unknown-%d: %v", i, err)
	}
	return int(r.metric("checkout_reads_total", checkout.FromDatabase) - before)
}

func TestFilter_UnknownIDsCostNoStatementAndNewOnesAreVisibleAtOnce(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("older") // before there is a filter
		one, two := r.filtered(r.clients.Redis, r.world.DB()), r.filtered(r.clients.Redis, r.world.DB())
		r.found("an order from before the filter", two, "older")
		for i := range 20 {
			id := fmt.Sprintf("new-%d", i)
			r.order(one, id)
			r.found("the other process", two, id)
		}
		closed := sql.OpenDB(nil)
		r.must(closed.Close())
		three := r.filtered(r.clients.Redis, closed) // each statement would fail
		n := r.asked(three)
		expect.That(t, n <= 1, "%d of 100 unknown ids asked the database", n)

		r.world.Redis.FlushAll()
		r.order(one, "later") // sets its bits in a bitmap without marks
		r.found("Redis has lost the filter", two, "older")
		four := r.filtered(r.clients.Redis, r.world.DB())
		r.found("filled again", two, "older")
		r.found("filled again", four, "later")
		n = r.asked(four)
		expect.That(t, n <= 1, "filled again, %d of 100 unknown ids asked the database", n)
	})
}

// cut is a Redis that one process cannot reach.
type cut struct {
	redis.UniversalClient
	off *atomic.Bool
}

func (c cut) Pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	if c.off.Load() {
		return nil, errors.New("no route to Redis")
	}
	return c.UniversalClient.Pipelined(ctx, f)
}

func TestFilter_IsFilledAgainAfterAnIDCouldNotBeAdded(t *testing.T) {
	off := &atomic.Bool{}
	inBubble(t, nil, func(r *rig) {
		one, two := r.filtered(cut{r.clients.Redis, off}, r.world.DB()), r.filtered(r.clients.Redis, r.world.DB())
		n := r.asked(two)
		expect.That(t, n <= 1, "%d of 100 unknown ids asked the database", n)
		off.Store(true)
		for _, id := range []string{"a", "b"} {
			r.order(one, id)
			r.found("its own process", one, id)
		}
		off.Store(false)
		time.Sleep(2 * time.Second)
		r.found("while it is filled", two, "a")
		time.Sleep(30 * time.Second)
		r.same("asked when it is filled", r.asked(two), n)
		for _, id := range []string{"a", "b"} {
			r.world.Redis.Del(viewOf + id)
			r.found("when it is filled", two, id)
		}
	})
}

func TestFilter_WithoutRedisReadsUseTheDatabase(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		client := deadRedis()
		defer func() {
			r.must(client.Close())
			time.Sleep(time.Minute) // the client keeps dialing for a while
		}()
		shop := r.filtered(client, r.world.DB())
		r.order(shop, "a")
		r.found("without Redis", shop, "a")
		r.same("asked", r.asked(shop), 100)
	})
}
