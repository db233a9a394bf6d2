package realtest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// slowly limits compensators to a hundred orders a second, which are ten at a time.
func (r *rig) slowly() {
	r.t.Helper()
	r.rewrite("  period: 5s\n", "  period: 5s\n  rate: 100\n")
}

// withoutRedis puts the lock into the database, and names no Redis to the processes.
func (r *rig) withoutRedis() {
	r.t.Helper()
	r.rewrite("  period: 5s\n", "  period: 5s\n  lock: database\n")
	r.servers.RedisURL = ""
}

// missed creates orders that are overdue and were never published.
func (r *rig) missed(n int) {
	r.t.Helper()
	for i := range n {
		must.Do(r.t, r.shop.Orders.CreateOrder(r.t.Context(), r.shop.Producer.Order(fmt.Sprint("missed-", i), time.Now().Add(-time.Hour)), nil))
	}
}

// lockKey returns the key of the lock of a compensator that runs. Its end is a digest of topics.yaml.
func (r *rig) lockKey() (key string) {
	r.t.Helper()
	client := r.redisClient()
	r.until("a compensator has the lock in Redis", func() bool {
		keys, err := client.Keys(r.t.Context(), r.cfg.Compensator.Lock.Key+"-*").Result()
		if len(keys) > 0 {
			key = keys[0]
		}
		return err == nil && key != ""
	})
	return key
}

// untilClosed waits until that many orders are closed.
func (r *rig) untilClosed(n int) {
	r.t.Helper()
	r.until(fmt.Sprint(n, " orders are closed"), func() bool { return r.count("SELECT COUNT(*) FROM receipts") >= n })
}

// The compensator that holds the lock is killed, or stopped for longer than its lock lasts and then
// continued. Another process takes over, and every order is closed once.
func TestReal_TheLoopIsTakenOverFromAStoppedProcess(t *testing.T) {
	servers := realServers(t)
	t.Parallel()
	killed := func(r *rig) { r.signal("compensator-1", syscall.SIGKILL) }
	frozen := func(r *rig) {
		r.send("compensator-1", syscall.SIGSTOP)
		r.untilClosed(r.count("SELECT COUNT(*) FROM receipts") + 50) // by the other one, when the lock has expired
		r.send("compensator-1", syscall.SIGCONT)
	}
	for name, stop := range map[string]func(r *rig){
		"killed, with the lock in Redis":        killed,
		"frozen, with the lock in Redis":        frozen,
		"killed, with the lock in the database": killed,
		"frozen, with the lock in the database": frozen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, servers)
			if strings.HasSuffix(name, "database") {
				r.withoutRedis()
			}
			r.disturbed = true
			r.slowly()
			r.missed(400)
			r.start("compensator-1")
			r.untilClosed(30)
			r.start("compensator-2")
			stop(r)
			r.untilClosed(400)
			v := r.check()
			expect.That(t, v.ByPath["sweep"] == 400, "closed %v", v.ByPath)
			if strings.HasSuffix(name, "database") {
				out, _ := r.cli("doctor")
				expect.That(t, !strings.Contains(strings.ToLower(out), "redis"), "doctor says\n%s", out)
			}
		})
	}
}

// Without Redis one of two compensators works by the lease in the database, and passes by hand run beside it.
func TestReal_TwoSweepsAtOnceChangeNothing(t *testing.T) {
	r := parallelRig(t)
	r.disturbed = true
	r.servers.RedisURL = "redis://127.0.0.1:" + freePort(t) + "/0" // no server listens there
	r.slowly()
	r.missed(200)
	r.start("compensator-1", "compensator-2")
	r.untilClosed(20)
	out, code := r.cli("compensate", "-o", "json")
	expect.That(t, code == 0 || code == 6, "exit %d: %s", code, out) // 6: the loop has locked some of the orders
	r.untilClosed(200)
	v := r.check()
	expect.That(t, v.ByPath["sweep"] == 200, "closed %v", v.ByPath)
}

// Every topic is deleted with its records and recreated. The compensator closes the orders within half a minute after they are due.
func TestReal_KafkaIsWiped(t *testing.T) {
	r := parallelRig(t)
	r.disturbed = true
	r.start("relay", "closer", "compensator")
	r.firstStart()
	const n = 50
	due := time.Now().Add(20 * time.Second).Truncate(time.Millisecond)
	for i := range n {
		o := orderclose.Order{ID: fmt.Sprint("waiting-", i), Category: "physical", CreatedAt: time.Now(), Due: due.Add(time.Duration(i) * 10 * time.Millisecond)}
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, nil))
		must.Do(t, r.shop.Publish(t.Context(), o))
	}
	r.signal("relay", syscall.SIGTERM)
	r.signal("closer", syscall.SIGTERM)
	r.clean(r.dropTopics)
	r.until("the topics are gone", func() bool {
		for _, spec := range ops.TopicSpecs(r.cfg) {
			if there, err := r.kafka.Exists(t.Context(), spec.Name); there || err != nil {
				return false
			}
		}
		return true
	})
	r.makeTopics()
	r.start("relay", "closer")
	r.untilClosed(n)
	t.Logf("the latest order closed %d ms late", r.count("SELECT MAX(lateness_ms) FROM receipts"))
}
