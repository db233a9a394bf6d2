// Package ordercache caches views of orders in the memory of one process. It is the cache before
// Redis: a hit costs no network.
//
//	f := cache.Begin(id)  // before the view is read
//	view, err := read(id)
//	f.End(view)           // or cache.Remove(id), after an error
//
// Follow receives the ids of orders that other processes have changed; Remove removes them. A read that
// began before a Remove fills an entry that the cache does not have any more, so it brings back no old view.
// Redis does not repeat messages: the caller shows a view for a bounded time, by View.At.
//
// Nothing is decided by a cached view. It is only shown.
package ordercache

import (
	"context"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// DefaultSize is a size for New.
const DefaultSize = 10_000

// Cache holds the views that were used last. Its methods are safe for concurrent use.
type Cache struct{ entries *lru.Cache[string, *Entry] }

// Entry is an order in the cache. It has no view while the order is being read.
type Entry struct{ view atomic.Pointer[shopdb.View] }

// New returns an empty Cache for a number of orders, at least one.
func New(size int) (*Cache, error) {
	entries, err := lru.New[string, *Entry](size)
	return &Cache{entries}, err
}

// Get returns the view of an order, if the cache has it.
func (c *Cache) Get(id string) (shopdb.View, bool) {
	if e, ok := c.entries.Get(id); ok {
		if v := e.view.Load(); v != nil {
			return *v, true
		}
	}
	return shopdb.View{}, false
}

// Begin announces that an order is about to be read.
func (c *Cache) Begin(id string) *Entry {
	e := &Entry{}
	c.entries.Add(id, e)
	return e
}

// End stores the view that was read since Begin.
func (e *Entry) End(v shopdb.View) { e.view.Store(&v) }

// Remove removes an order, and makes the reads that are under way store nothing.
func (c *Cache) Remove(id string) { c.entries.Remove(id) }

// Follow calls changed with each id that is published on the channel, until ctx ends. The client
// connects again by itself after a failure; ids that were published meanwhile are lost.
func Follow(ctx context.Context, client redis.UniversalClient, channel string, changed func(id string)) {
	subscription := client.Subscribe(ctx, channel)
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	for m := range subscription.Channel(redis.WithChannelSize(1000)) {
		changed(m.Payload)
	}
}
