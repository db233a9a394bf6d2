package ordercache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is a view of an order at a version.
func at(id string, version int64) shopdb.View {
	return shopdb.View{Order: orderclose.Order{ID: id}, Version: version, At: time.Now()}
}

// fill reads and stores a view.
func fill(c *Cache, v shopdb.View) { c.Begin(v.ID).End(v, true) }

// version returns the version of the view in the cache; 0: there is none.
func version(c *Cache, id string) int64 {
	v, _ := c.Get(id)
	return v.Version
}

func want(t *testing.T, what string, got, want int64) {
	t.Helper()
	expect.Equal(t, got, want, "%s: version", what)
}

func TestCache_AStaleFillNeverReplacesANewerVersion(t *testing.T) {
	c := New(Options{})
	slow := c.Begin("a")
	c.Changed("a", 2) // while the order is read, and not in the cache
	slow.End(at("a", 1), true)
	want(t, "a read that began before the change", version(c, "a"), 0)

	first, second := c.Begin("a"), c.Begin("a")
	c.Changed("a", 3)
	first.End(at("a", 3), true)
	second.End(at("a", 2), true)
	want(t, "of two reads, the older one ends last", version(c, "a"), 3)

	c.Changed("a", 4)
	want(t, "after a change", version(c, "a"), 0)
	fill(c, at("a", 3)) // from a Redis that has not heard of the change yet
	want(t, "a read after the change that is older", version(c, "a"), 0)
	fill(c, at("a", 4))
	c.Changed("a", 4)
	c.Changed("a", 2)
	want(t, "after changes that are known", version(c, "a"), 4)

	c.Begin("a").End(shopdb.View{}, false)
	want(t, "after a failed read", version(c, "a"), 4)
	expect.Equal(t, len(c.filling), 0, "reads are kept after their end")
}

// Any mix of reads and changes: no view is shown that is older than a change that was announced before the view was asked for.
func TestCache_NeverShowsAnOlderVersionThanAnnounced(t *testing.T) {
	c := New(Options{Size: 4})
	var mu sync.Mutex
	truth, announced := map[string]int64{}, map[string]int64{}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 3000 {
				id := fmt.Sprint((worker + i) % 9)
				if i%5 == 0 {
					mu.Lock()
					truth[id]++
					v := truth[id]
					mu.Unlock()
					c.Changed(id, v)
					mu.Lock()
					announced[id] = max(announced[id], v)
					mu.Unlock()
					continue
				}
				mu.Lock()
				least := announced[id]
				mu.Unlock()
				if v, ok := c.Get(id); ok && v.Version < least {
					t.Errorf("order %s: version %d, and %d was announced", id, v.Version, least)
				}
				f := c.Begin(id)
				mu.Lock()
				v := truth[id]
				mu.Unlock()
				f.End(at(id, v), true)
			}
		})
	}
	all.Wait()
}

func TestCache_AnEntryLastsForItsTTLAndTheOldestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Size: 2})
		fill(c, at("a", 1))
		time.Sleep(DefaultTTL)
		want(t, "after the TTL", version(c, "a"), 1)
		time.Sleep(time.Millisecond)
		want(t, "past the TTL", version(c, "a"), 0)
		for _, id := range []string{"a", "b", "a", "c"} {
			fill(c, at(id, 1))
		}
		want(t, "the least recently used", version(c, "b"), 0)
		expect.Equal(t, c.Len(), 2, "orders")
	})
}

func TestRefresh_ReplacesViewsThatAreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var asked [][]string
		var failing atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Refresh(ctx, RefreshOptions{
				Every: time.Second,
				Keep:  func(v shopdb.View) bool { return v.ID != "final" },
				Read: func(_ context.Context, ids []string) ([]shopdb.View, error) {
					asked = append(asked, ids)
					if failing.Load() {
						return nil, context.DeadlineExceeded
					}
					return []shopdb.View{at("used", 2)}, nil // gone does not exist any more
				},
				Failed: func(error) {},
			})
		}()
		for _, id := range []string{"used", "gone", "final"} {
			fill(c, at(id, 1))
		}
		time.Sleep(1500 * time.Millisecond)
		want(t, "refreshed", version(c, "used"), 2)
		want(t, "gone", version(c, "gone"), 0)
		want(t, "final", version(c, "final"), 1)
		failing.Store(true)
		time.Sleep(2 * time.Second)
		want(t, "after a failed round", version(c, "used"), 2)
		cancel()
		<-done
		expect.That(t, len(asked) == 2 && len(asked[0]) == 2 && len(asked[1]) == 1,
			"asked for %v: want the two in use, and then the one that was read since", asked)
	})
}

func TestMessage_IsParsed(t *testing.T) {
	for _, id := range []string{"o-1", "an order", "1 2"} {
		got, v, ok := parseMessage(Message(id, 7))
		expect.That(t, got == id && v == 7 && ok, "%q: %q, %d, %v", id, got, v, ok)
	}
	for _, m := range []string{"", "x", "x y", "7 "} {
		_, _, ok := parseMessage(m)
		expect.That(t, !ok, "%q is no message", m)
	}
}
