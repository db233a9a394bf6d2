package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/idfilter"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/producer"
)

// filter returns the filter of a process, whose Redis change may replace.
func (r *rig) filter(client redis.UniversalClient) *idfilter.Filter {
	r.t.Helper()
	f, err := idfilter.New(idfilter.Options{
		Redis: client, DB: r.world.DB(), Orders: r.orders(), Dialect: producer.SQLite, Prefix: "checkout:", Capacity: 20_000,
	})
	r.must(err)
	return f
}

// filtered returns a shop of another process, with its filter.
func (r *rig) filtered(client redis.UniversalClient) (*checkout.Shop, *idfilter.Filter) {
	f := r.filter(client)
	return r.newShop(func(o *checkout.Options) { o.Filter = f }), f
}

// build runs a filter until the test ends. It is built after that.
func (r *rig) build(f *idfilter.Filter) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	r.onStop(func() { cancel(); <-done })
	time.Sleep(10 * time.Second)
	r.same("phase", r.rows("SELECT phase FROM checkout_id_filter"), []string{"ready"})
}

// order creates an order through a shop of its own process, and returns how long that took.
func (r *rig) order(shop *checkout.Shop, id string) time.Duration {
	r.t.Helper()
	begin := time.Now()
	_, err := shop.Create(r.t.Context(), checkout.Request{}, checkout.Basket{ID: id, Customer: "ann", Category: "virtual",
		Items: []checkout.Line{{SKU: "ink", Quantity: 1}}})
	r.must(err)
	return time.Since(begin)
}

// found checks that a shop finds an order.
func (r *rig) found(what string, shop *checkout.Shop, id string) {
	r.t.Helper()
	_, err := shop.Get(r.t.Context(), id)
	expect.That(r.t, err == nil, "%s: %v", what, err)
}

// asked returns how many queries the reads of n unknown ids cost.
func (r *rig) asked(shop *checkout.Shop, n int) float64 {
	r.t.Helper()
	before := r.metric("checkout_reads_total", checkout.FromDatabase)
	for i := range n {
		_, err := shop.Get(r.t.Context(), fmt.Sprintf("unknown-%d", i))
		must.That(r.t, errors.Is(err, shopdb.ErrNoOrder), "unknown-%d: %v", i, err)
	}
	return r.metric("checkout_reads_total", checkout.FromDatabase) - before
}

func TestFilter_UnknownIDsCostFewReadsAndNewOnesAreVisibleAtOnce(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("older") // before there is a filter
		one, f := r.filtered(r.clients.Redis)
		two, _ := r.filtered(r.clients.Redis)
		r.build(f)
		r.found("an order from before the filter", two, "older")
		n := r.asked(two, unknownIDs)
		expect.That(t, n <= unknownIDs/50, "%d unknown ids cost %v reads", unknownIDs, n)
		for i := range 100 {
			id := fmt.Sprintf("new-%d", i)
			r.same("the wait of a checkout", r.order(one, id), time.Duration(0))
			r.world.Redis.Del(viewOf + id) // the view would answer
			r.found("the other process", two, id)
		}
		// A refused checkout leaves no order. Its id may cost a query.
		_, err := one.Create(r.t.Context(), checkout.Request{}, checkout.Basket{ID: "refused", Customer: "ann", Points: 10_000,
			Items: []checkout.Line{{SKU: "ink", Quantity: 1}}})
		expect.That(t, errors.Is(err, checkout.ErrFewPoints), "%v", err)
		if _, err := two.Get(r.t.Context(), "refused"); !errors.Is(err, shopdb.ErrNoOrder) {
			t.Error(err)
		}
	})
}

func TestFilter_ALostBitmapIsNotUsedAndIsBuiltAgain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		one, f := r.filtered(r.clients.Redis)
		two, _ := r.filtered(r.clients.Redis)
		r.build(f)
		r.order(one, "a")
		r.world.Redis.FlushAll()
		r.order(one, "b") // sets its bits in a bitmap without the mark
		r.world.Redis.Del(viewOf + "b")
		r.found("an order from before the loss", two, "a")
		r.found("an order from after the loss", two, "b")
		time.Sleep(30 * time.Second)
		r.same("phase", r.rows("SELECT phase FROM checkout_id_filter"), []string{"ready"})
		for _, id := range []string{"a", "b"} {
			r.world.Redis.Del(viewOf + id)
			r.found("after it was built again", two, id)
		}
		n := r.asked(two, 100)
		expect.That(t, n <= 2, "100 unknown ids cost %v reads", n)
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

// The process that creates orders cannot reach Redis, and the others can.
func TestFilter_AnIDThatCannotBeAddedIsVisibleBeforeTheCheckoutAnswers(t *testing.T) {
	off := &atomic.Bool{}
	inBubble(t, nil, func(r *rig) {
		one, _ := r.filtered(cut{r.clients.Redis, off})
		two, f := r.filtered(r.clients.Redis)
		r.build(f)
		if n := r.asked(two, 100); n > 2 { // it uses the filter
			t.Errorf("100 unknown ids cost %v reads", n)
		}
		off.Store(true)
		if took := r.order(one, "first"); took < time.Second || took > 2*time.Second {
			t.Errorf("the first checkout without Redis took %v, want a bit more than the lease of a second", took)
		}
		r.world.Redis.Del(viewOf + "first")
		r.found("the other process", two, "first")
		for i := range 20 {
			id := fmt.Sprintf("later-%d", i)
			r.order(one, id)
			r.world.Redis.Del(viewOf + id)
			r.found("the other process", two, id)
			time.Sleep(1700 * time.Millisecond) // another process builds the filter meanwhile
		}
		off.Store(false)
		time.Sleep(30 * time.Second)
		for i := range 20 {
			id := fmt.Sprintf("later-%d", i)
			r.world.Redis.Del(viewOf + id)
			r.found("after it was built again", two, id)
		}
		n := r.asked(two, 100)
		expect.That(t, n <= 2, "with Redis back 100 unknown ids cost %v reads", n)
	})
}

// The filter breaks down between a checkout's look at its state and the order's transaction.
func TestFilter_ACheckoutNoticesThatTheFilterHasChanged(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		one, f := r.filtered(r.clients.Redis)
		two, _ := r.filtered(r.clients.Redis)
		r.build(f)
		r.order(one, "a") // reads the state, which counts for a second
		r.asked(two, 1)
		_, err := r.world.DB().Exec("UPDATE checkout_id_filter SET phase = 'broken'")
		r.must(err)
		took := r.order(one, "b")
		expect.That(t, took >= time.Second, "the checkout took %v, want at least the lease of a second", took)
		r.world.Redis.Del(viewOf + "b")
		r.found("the other process", two, "b")
	})
}

// A filter with more ids than it was built for is replaced by a larger one.
func TestFilter_AFullOneIsReplaced(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		f, err := idfilter.New(idfilter.Options{
			Redis: r.clients.Redis, DB: r.world.DB(), Orders: r.orders(), Dialect: producer.SQLite, Prefix: "checkout:", Capacity: 50,
		})
		r.must(err)
		shop := r.newShop(func(o *checkout.Options) { o.Filter = f })
		r.build(f)
		small := r.rows("SELECT bits FROM checkout_id_filter")
		for i := range 120 {
			r.order(shop, fmt.Sprintf("o-%d", i))
		}
		time.Sleep(3 * time.Minute)
		r.same("generation and phase", r.rows("SELECT generation, phase FROM checkout_id_filter"), []string{"2 ready"})
		large := r.rows("SELECT bits FROM checkout_id_filter")
		expect.That(t, large[0] != small[0], "%v bits before and after", large)
		for i := range 120 {
			id := fmt.Sprintf("o-%d", i)
			r.world.Redis.Del(viewOf + id)
			r.found("in the larger filter", shop, id)
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
		shop, _ := r.filtered(client)
		r.order(shop, "a")
		r.found("without Redis", shop, "a")
		n := r.asked(shop, 10)
		expect.That(t, n == 10, "10 unknown ids cost %v reads", n)
	})
}
