package checkout_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// cached gives a shop a cache of its own.
func cached(o *checkout.Options) { o.CacheSize = 100 }

// follow keeps the cache of a shop right until the test ends.
func (r *rig) follow(shop *checkout.Shop) {
	r.onStop(testkit.Start(r.t, func(ctx context.Context) error { shop.FollowChanges(ctx); return nil }))
	time.Sleep(100 * time.Millisecond) // until it has subscribed
}

// status reads an order through a shop of its own process.
func (r *rig) status(shop *checkout.Shop, id string) checkout.State {
	r.t.Helper()
	o, err := shop.Get(r.t.Context(), id)
	r.must(err)
	return o.Status
}

func TestCache_AnotherProcessLearnsOfAChange(t *testing.T) {
	inBubble(t, cached, func(r *rig) {
		other := r.newShop(cached) // the registry counts its reads from here on
		r.follow(r.shop)
		r.follow(other)
		r.create("a")
		for range 10 {
			r.same("unpaid", r.status(other, "a"), checkout.Unpaid)
		}
		r.same("reads from the cache of the process", r.metric("checkout_reads_total", checkout.FromLocal), 9.0)
		r.pay("a")
		time.Sleep(time.Millisecond)
		r.same("after the payment", r.status(other, "a"), checkout.Paid)
		r.do("a", checkout.Ship)
		time.Sleep(time.Millisecond)
		r.same("after it was shipped", r.status(other, "a"), checkout.Shipped)
	})
}

// No message comes through: the process that changes the order has no Redis.
func TestCache_AMissedChangeIsHiddenForAtMostMaxStale(t *testing.T) {
	inBubble(t, func(o *checkout.Options) { o.CacheSize, o.Redis = 100, nil }, func(r *rig) {
		other := r.newShop(cached)
		r.follow(other)
		r.create("a")
		r.status(other, "a")
		r.pay("a")
		r.same("its own process", r.get("a").Status, checkout.Paid)
		time.Sleep(checkout.DefaultMaxStale + time.Millisecond)
		r.same("another process", r.status(other, "a"), checkout.Paid)
	})
}

func TestCache_NoOrderIsShownUnpaidPastItsDueTime(t *testing.T) {
	inBubble(t, cached, func(r *rig) {
		r.follow(r.shop)
		o := r.create("a")
		for time.Until(o.DueAt) > 0 {
			got := r.get("a")
			expect.That(t, got.Status == checkout.Unpaid && got.SecondsLeft >= 1, "%v before it is due: %+v", time.Until(o.DueAt), got)
			time.Sleep(300 * time.Millisecond)
		}
		r.same("past due", r.get("a").Status, checkout.Closed)
		r.same("receipts", r.rows("SELECT path FROM receipts"), []string{"touch"})
	})
}

// The due time was moved forward behind the shop's back, and the pipeline closes the order. Its event
// drops the view in Redis, and the version announces itself to all processes.
func TestCache_AnEarlierCloseReachesTheCachesByItsEvent(t *testing.T) {
	inBubble(t, cached, func(r *rig) {
		r.follow(r.shop)
		r.read(r.newShop(cached)) // another process reads the events
		r.create("a")
		r.get("a")
		_, err := r.world.DB().Exec("UPDATE orders SET status = 2, version = 2, closed_at = expire_at")
		r.must(err)
		r.publish(1, "a", closedEvent(r, "a"))
		time.Sleep(time.Second)
		r.same("after the event", r.get("a").Status, checkout.Closed)
	})
}

func TestPage_CountsDownByTheDatabasesClockAndShowsTheEnd(t *testing.T) {
	inBubble(t, cached, func(r *rig) {
		o := r.create("a")
		r.create("b")
		r.pay("b")
		time.Sleep(90 * time.Second)
		page := r.want(200, "GET", "/orders/a/page", "")
		for _, part := range []string{`http-equiv="refresh" content="15"`, `data-seconds="210"`, ">3:30</time>", "<script>", `datetime="PT210S"`} {
			expect.That(t, strings.Contains(page.Body, part), "no %s in\n%s", part, page.Body)
		}
		for name, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"} {
			r.same(name, page.Header.Get(name), want)
		}
		policy := page.Header.Get("Content-Security-Policy")
		expect.That(t, strings.Contains(policy, "script-src 'sha256-"), "policy %q", policy)
		paid := r.want(200, "GET", "/orders/b/page", "").Body
		expect.That(t, strings.Contains(paid, "The order is paid") && !strings.Contains(paid, "<script>"), "%v", paid)
		time.Sleep(time.Until(o.DueAt.Add(-2 * time.Second)))
		late := r.want(200, "GET", "/orders/a/page", "").Body
		expect.That(t, strings.Contains(late, `content="3"`) && strings.Contains(late, ">0:02</time>"), "two seconds before it is due:\n%s", late)
		time.Sleep(2 * time.Second)
		closed := r.want(200, "GET", "/orders/a/page", "").Body
		expect.That(t, strings.Contains(closed, "was closed") && !strings.Contains(closed, "http-equiv") && !strings.Contains(closed, "<script>"), "%v", closed)
		missing := r.want(404, "GET", "/orders/none/page", "").Body
		expect.That(t, strings.Contains(missing, "No such order"), "%v", missing)
		hostile := r.want(404, "GET", "/orders/%3Cscript%3E/page", "").Body
		expect.That(t, !strings.Contains(hostile, "<script"), "%v", hostile)
	})
}

// Of many requests for one order at once, one asks the database.
func TestCache_RequestsForOneOrderShareAQuery(t *testing.T) {
	inBubble(t, func(o *checkout.Options) { o.CacheSize, o.Redis = 100, nil }, func(r *rig) {
		r.create("a")
		var readers sync.WaitGroup
		for range 50 {
			readers.Go(func() {
				w := httptest.NewRecorder()
				r.shop.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/orders/a", nil))
				expect.Equal(t, w.Code, 200, "status")
			})
		}
		readers.Wait()
		expect.AtMost(t, r.metric("checkout_reads_total", checkout.FromDatabase), 25, "queries for 50 requests")
	})
}

const viewOf = checkout.DefaultViewPrefix

func TestView_ReadsUseRedisAndNothingIsDecidedByIt(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		o := r.create("a")
		r.get("a") // which also reads the database's clock
		hash := func(id string) map[string]string {
			h, err := r.clients.Redis.HGetAll(context.Background(), viewOf+id).Result()
			r.must(err)
			return h
		}
		r.same("status in Redis", hash("a")["status"], "0")
		ttl, err := r.clients.Redis.TTL(context.Background(), viewOf+"a").Result()
		r.must(err)
		r.same("time to live", ttl.Round(time.Minute), 24*time.Hour)

		// A Redis that was emptied is filled again.
		r.world.Redis.FlushAll()
		r.same("status", r.get("a").Status, checkout.Unpaid)
		r.same("status in Redis", hash("a")["status"], "0")

		// A wrong view in Redis is shown while it is fresh, and decides nothing.
		lie := func(fields ...any) { r.must(r.clients.Redis.HSet(context.Background(), viewOf+"a", fields...).Err()) }
		lie("status", 1)
		r.same("shown", r.get("a").Status, checkout.Paid)
		r.want(409, "POST", "/orders/a/ship", "")
		time.Sleep(checkout.DefaultMaxStale + time.Second)
		r.same("shown when it is stale", r.get("a").Status, checkout.Unpaid)
		lie("status", 0, "due", o.DueAt.Add(time.Hour).UnixMilli(), "read", "soon")
		r.same("shown of a hash that cannot be read", r.get("a").DueAt, o.DueAt)

		// Past due the database is read, whatever Redis has and however fresh it is.
		time.Sleep(time.Until(o.DueAt) - checkout.DefaultMaxStale/2)
		r.get("a")
		lie("version", 99, "read", o.DueAt.Add(time.Minute).UnixMilli())
		time.Sleep(time.Until(o.DueAt))
		r.same("shown past due", r.get("a").Status, checkout.Closed)
	})
}

func TestView_AnOlderOneNeverReplacesANewerOne(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("a")
		old, err := r.orders().ViewOrder(r.t.Context(), "a") // read, and written to Redis later
		r.must(err)
		r.do("a", checkout.Pay)
		checkout.PutView(r.shop, old)
		r.get("a")
		version, err := r.clients.Redis.HGet(context.Background(), viewOf+"a", "version").Result()
		r.must(err)
		r.same("version in Redis", version, "2")
		r.same("status", r.get("a").Status, checkout.Paid)
	})
}

// Redis misses a payment, and returns with its old content.
func TestView_AMissedChangeIsHiddenForAtMostMaxStale(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("a")
		r.get("a")
		r.world.Redis.SetError("no Redis")
		r.pay("a")
		r.same("shown without Redis", r.get("a").Status, checkout.Paid)
		r.world.Redis.SetError("")
		time.Sleep(checkout.DefaultMaxStale)
		for range 3 {
			time.Sleep(time.Second)
			r.same("shown with Redis back", r.get("a").Status, checkout.Paid)
		}
	})
}

func TestView_WithoutRedisTheShopWorks(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(map[bool]string{false: "none", true: "dead"}[dead], func(t *testing.T) {
			var client redis.UniversalClient
			inBubble(t, func(o *checkout.Options) {
				if o.Redis = nil; dead {
					client = deadRedis()
					o.Redis = client
				}
			}, func(r *rig) {
				if dead {
					defer func() {
						r.must(client.Close())
						time.Sleep(time.Minute) // the client keeps dialing for a while
					}()
				}
				o := r.create("a")
				r.create("b")
				r.do("b", checkout.Pay, checkout.Ship)
				time.Sleep(time.Until(o.DueAt))
				r.same("statuses", []checkout.State{r.get("a").Status, r.get("b").Status}, []checkout.State{checkout.Closed, checkout.Shipped})
			})
		})
	}
}
