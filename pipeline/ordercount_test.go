package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// counters are processes that count overdue orders with one Redis, in a synctest bubble.
type counters struct {
	*testing.T
	server  *miniredis.Miniredis
	lock    compensator.Lock
	began   time.Time
	overdue int64 // what each count finds; negative: it fails

	mu      sync.Mutex
	counted []string     // which process counted when
	known   map[int]bool // the processes with a value of the metric
}

func inCounters(t *testing.T, test func(c *counters)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() }})
		defer client.Close()
		cfg := must.Get(config.Parse("topics.yaml", []byte("buckets: [1m]\n")))(t)
		a := &App{o: Options{Config: cfg}, conns: clients.Clients{Redis: client}}
		lock := must.Get(a.sweepLock("-count-overdue", countLockExpiry))(t)
		test(&counters{T: t, server: server, lock: lock, began: time.Now(), known: map[int]bool{}})
	})
}

// start starts a process, and returns what stops it.
func (c *counters) start(process int, lock compensator.Lock) (stop func()) {
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	running.Go(func() {
		orderCounter{
			lock: lock, logger: slog.New(slog.DiscardHandler),
			count: func(context.Context) (ops.OverdueOrders, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.counted = append(c.counted, fmt.Sprintf("%d@%.0fs", process, time.Since(c.began).Seconds()))
				if c.overdue < 0 {
					return ops.OverdueOrders{}, errors.New("no answer")
				}
				return ops.OverdueOrders{At: time.Now(), Orders: c.overdue}, nil
			},
			report: func(o ops.OverdueOrders) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.known[process] = !o.At.IsZero(); !c.known[process] {
					delete(c.known, process)
				}
			},
		}.run(ctx)
	})
	return func() { cancel(); running.Wait() }
}

// finds sets what the next counts find.
func (c *counters) finds(overdue int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overdue = overdue
}

// want checks which processes have counted when, and which have a value now.
func (c *counters) want(known []int, counted ...string) {
	c.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var have []int
	for process := range c.known {
		have = append(have, process)
	}
	slices.Sort(c.counted)
	if slices.Sort(have); !slices.Equal(have, known) || !slices.Equal(c.counted, counted) {
		c.Errorf("after %v the processes %v have a value, and the counts are %v; want %v, %v", time.Since(c.began), have, c.counted, known, counted)
	}
	c.counted = nil
}

func TestOrderCounter_OneProcessCountsMoreOftenWhileOrdersAreOverdue(t *testing.T) {
	inCounters(t, func(c *counters) {
		stop := c.start(1, c.lock)
		defer func() { stop() }()
		time.Sleep(time.Second)
		defer c.start(2, c.lock)()
		time.Sleep(30 * time.Second) // 31 s
		c.want([]int{1}, "1@0s", "1@15s", "1@30s")
		c.finds(7)
		time.Sleep(20 * time.Second) // 51 s
		c.want([]int{1}, "1@45s", "1@50s")
		c.finds(0)
		time.Sleep(20 * time.Second) // 71 s
		c.want([]int{1}, "1@55s", "1@70s")
		stop()
		stop = func() {}
		time.Sleep(30 * time.Second) // the second process asks for the lock each 30 s
		c.want([]int{2}, "2@91s")
	})
}

func TestOrderCounter_AnotherProcessCountsWithinAMinuteAfterACrash(t *testing.T) {
	inCounters(t, func(c *counters) {
		const key = "lock:scan_unpaid_orders-count-overdue"
		stop := c.start(1, c.lock)
		time.Sleep(40 * time.Second)
		left := c.server.TTL(key)
		expect.That(t, left > 0 && left <= 30*time.Second, "a crash would keep the lock for %v", left)
		stop()
		c.want(nil, "1@0s", "1@15s", "1@30s")
		must.Do(t, c.server.Set(key, "a process that crashed"))
		c.server.SetTTL(key, 30*time.Second)
		defer c.start(2, c.lock)()
		time.Sleep(46 * time.Second)
		c.want([]int{2}, "2@70s", "2@85s")
	})
}

func TestOrderCounter_CountsWithoutRedis(t *testing.T) {
	inCounters(t, func(c *counters) {
		c.server.SetError("OOM command not allowed")
		defer c.start(1, c.lock)()
		defer c.start(2, nil)()
		time.Sleep(16 * time.Second)
		c.want([]int{1, 2}, "1@0s", "1@15s", "2@0s", "2@15s")
	})
}

// A process that does not reach the database must not keep others from counting.
func TestOrderCounter_GivesTheLockBackIfACountFails(t *testing.T) {
	inCounters(t, func(c *counters) {
		defer c.start(1, c.lock)()
		time.Sleep(time.Second)
		c.want([]int{1}, "1@0s")
		c.finds(-1)
		time.Sleep(15 * time.Second)
		c.want([]int{1}, "1@15s") // the last count holds
		c.finds(0)
		defer c.start(2, c.lock)()
		time.Sleep(35 * time.Second)
		c.want([]int{2}, "2@16s", "2@31s", "2@46s")
		c.finds(-1)
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); len(c.known) > 0 {
			t.Errorf("the processes %v have a value, and each count has failed for two minutes", c.known)
		}
	})
}
