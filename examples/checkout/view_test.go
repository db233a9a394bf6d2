package checkout_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/examples/checkout"
)

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
