// Package ordercache caches views of orders in the memory of one process. It is the cache before
// Redis: a hit costs no network.
//
//	f := cache.Begin(id)         // before the view is read
//	view, err := read(id)
//	f.End(view, err == nil)      // stores the view, unless a newer version is known by now
//
// The version of the order keeps the cache right. Changed drops an older view and refuses fills
// with older versions, also those whose read began before the change. Follow receives the versions
// that other processes announce. A message may be lost, so a view also has the time of its read by
// the database's clock: the caller shows it for a bounded time only, and Refresh replaces the views
// that are in use by a query for many orders at once.
//
//	ordercache.go   the cache, and the versions
//	changes.go      what processes announce to each other
//	refresh.go      the bound, if a message is lost
//
// Nothing is decided by a cached view. It is only shown.
package ordercache

import (
	"cmp"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Defaults of Options.
const (
	DefaultSize = 10_000
	DefaultTTL  = 5 * time.Minute
)

// Options configure a Cache. The zero value is valid.
type Options struct {
	Size int           // maximum number of orders; default DefaultSize
	TTL  time.Duration // an entry is dropped that long after it was filled; default DefaultTTL
}

// Cache holds the views that were used last. Its methods are safe for concurrent use.
type Cache struct {
	ttl time.Duration

	mu      sync.Mutex
	entries *simplelru.LRU[string, *entry]
	filling map[string]*fills // orders that are being read, by id
}

// entry is an order that is in the cache.
type entry struct {
	view    shopdb.View // without an id: the view is not known, only the version
	version int64       // the newest version that is known; an older view is not stored
	expires time.Time   // by the local clock
	used    bool        // since the last Refresh
}

// fills are the reads of one order that are under way.
type fills struct {
	count   int
	version int64 // the newest version that was announced since the first of them began
}

// New returns an empty Cache.
func New(o Options) *Cache {
	o.Size, o.TTL = cmp.Or(o.Size, DefaultSize), cmp.Or(o.TTL, DefaultTTL)
	entries, err := simplelru.NewLRU[string, *entry](max(o.Size, 1), nil)
	if err != nil {
		panic("ordercache: " + err.Error()) // only a size below one is refused
	}
	return &Cache{ttl: o.TTL, entries: entries, filling: map[string]*fills{}}
}

// Get returns the view of an order, if the cache has it. The caller decides by View.At whether it
// may still be shown.
func (c *Cache) Get(id string) (shopdb.View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.live(id)
	if !ok || e.view.ID == "" {
		return shopdb.View{}, false
	}
	e.used = true
	return e.view, true
}

// live returns an entry that has not expired, and marks it as recently used.
func (c *Cache) live(id string) (*entry, bool) {
	e, ok := c.entries.Get(id)
	if ok && time.Now().After(e.expires) {
		c.entries.Remove(id)
		return nil, false
	}
	return e, ok
}

// Fill is a read of an order that will be stored. The caller must call End once.
type Fill struct {
	cache *Cache
	id    string
}

// Begin announces that an order is about to be read.
func (c *Cache) Begin(id string) Fill {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.filling[id]
	if f == nil {
		f = &fills{}
		c.filling[id] = f
	}
	f.count++
	return Fill{c, id}
}

// End stores the view that was read since Begin, unless a newer version is known. With ok false
// nothing was read.
func (f Fill) End(v shopdb.View, ok bool) {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	under := c.filling[f.id]
	if under.count--; under.count == 0 {
		delete(c.filling, f.id)
	}
	if !ok || v.Version < under.version {
		return
	}
	if e, known := c.live(f.id); known {
		e.store(v, time.Now().Add(c.ttl))
		return
	}
	c.entries.Add(f.id, &entry{view: v, version: v.Version, expires: time.Now().Add(c.ttl), used: true})
}

// store replaces the view by one that is not older: by its version, and of two reads of one
// version by the time of the read.
func (e *entry) store(v shopdb.View, expires time.Time) {
	switch {
	case v.Version < e.version:
	case e.view.ID != "" && v.Version == e.view.Version && v.At.Before(e.view.At):
	default:
		e.view, e.version, e.expires = v, v.Version, expires
	}
}

// Changed says that the order has reached a version. An older view is dropped, and is not stored
// any more.
func (c *Cache) Changed(id string, version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.filling[id]; f != nil {
		f.version = max(f.version, version)
	}
	if e, ok := c.entries.Peek(id); ok && e.version < version {
		e.view, e.version = shopdb.View{}, version
	}
}

// inUse returns the orders that were read from the cache since its last call and that keep
// returns true for.
func (c *Cache) inUse(keep func(shopdb.View) bool) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.entries.Keys() {
		e, ok := c.entries.Peek(id)
		if ok && e.used && e.view.ID != "" && keep(e.view) {
			ids = append(ids, id)
			e.used = false
		}
	}
	return ids
}

// replace stores the views of orders that the cache still has. Orders without a view do not exist
// any more, and are dropped. An entry expires as before.
func (c *Cache) replace(ids []string, views []shopdb.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[string]shopdb.View, len(views))
	for _, v := range views {
		found[v.ID] = v
	}
	for _, id := range ids {
		e, ok := c.entries.Peek(id)
		v, exists := found[id]
		switch {
		case !ok:
		case exists:
			e.store(v, e.expires)
		default:
			c.entries.Remove(id)
		}
	}
}

// Len returns the number of orders in the cache.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}
