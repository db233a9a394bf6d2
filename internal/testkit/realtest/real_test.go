package realtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
)

func TestReal_EveryPromiseIsKept(t *testing.T) {
	eachDatabase(t, everyPromiseIsKept)
}

func everyPromiseIsKept(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	if r.store.Dialect() == store.Postgres { // a mistake with time zones would be hours wide
		r.exec("ALTER DATABASE " + r.database() + " SET timezone = 'Asia/Shanghai'")
	}
	r.start("relay", "closer", "compensator", "outbox")
	r.firstStart()
	r.play(1, 200, 5*time.Second)
	r.settle()
	r.drain()
	v := r.check()
	expect.That(t, v.ByPath["sweep"] != 0 && v.ByPath["pipeline"] != 0 && v.Paid != 0, "%d paid, closed by path %v: the history is not whole", v.Paid, v.ByPath)
	for _, part := range []string{"relay", "closer", "compensator", "outbox"} {
		expect.NoError(t, r.process(part).End(syscall.SIGTERM, waitLimit))
	}
}

// The processes are killed several times while they work, and started again.
func TestReal_KillingARelayOrACloserLosesNothing(t *testing.T) {
	eachDatabase(t, killingARelayOrACloser)
}

func killingARelayOrACloser(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	r.disturbed = true
	r.start("relay", "closer")
	played := make(chan struct{})
	go func() {
		defer close(played)
		r.play(2, 400, 12*time.Second)
	}()
	for i, part := range []string{"relay", "closer", "relay", "closer"} {
		r.created(80 * (i + 1))
		r.signal(part, syscall.SIGKILL)
		r.start(part)
	}
	<-played
	r.publishedAreClosed()
	r.start("compensator") // now, because on a busy machine it would be the first
	r.settle()
	r.check()
}

// caughtUp waits until the closer has committed every record of the close topic.
func (r *rig) caughtUp() {
	r.t.Helper()
	r.until("the closer has handled the close topic", func() bool {
		return must.Get(scenario.WaitingIn(r.t.Context(), r.kafka, r.cfg.CloserGroup(), r.cfg.Topics.Close))(r.t) == 0
	})
}

func (r *rig) decode(out string, into any) {
	r.t.Helper()
	err := json.Unmarshal([]byte(out), into)
	must.That(r.t, err == nil, "%v in %q", err, out)
}

func TestReal_TopicsCheckFindsDriftAndApplyFixesIt(t *testing.T) {
	eachDatabase(t, topicsCheckFindsDrift)
}

func topicsCheckFindsDrift(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	if out, code := r.cli("topics", "check"); code != 0 {
		t.Errorf("after apply it exits with %d:\n%s", code, out)
	}
	// A bucket with too short a retention, and a missing topic.
	specs := topics.Specs(r.cfg)
	short := specs[0]
	must.Do(t, drop.Topics(t.Context(), r.kafka, short.Name, specs[1].Name))
	r.eventually(func() error {
		states, err := r.kafka.Topics(t.Context(), short.Name, specs[1].Name)
		if err == nil && len(states) > 0 {
			err = fmt.Errorf("still there: %v", states)
		}
		return err
	})
	short.Retention, short.BrokerTime = time.Minute, false
	must.Do(t, apply(t.Context(), r.kafka, []kafka.TopicSpec{short}))
	var result ops.TopicsPlan
	out, code := r.cli("topics", "check", "-o", "json")
	if r.decode(out, &result); code != 3 || len(result.Would)+len(result.Left) != 3 {
		t.Errorf("exits with %d and finds %+v; want 3, and retention, timestamps and a missing topic", code, result)
	}
	r.must("topics", "apply")
	if out, code := r.cli("topics", "check"); code != 0 {
		t.Errorf("after the fix it exits with %d:\n%s", code, out)
	}
	for _, sync := range []config.SyncMode{config.SyncAlways, "", config.SyncNever, ""} {
		cfg := *r.cfg
		cfg.Sync = sync
		must.Do(t, apply(t.Context(), r.kafka, topics.Specs(&cfg)))
		want := strconv.Itoa(cmp.Or(cfg.FlushMessages(cfg.Topics.Close), math.MaxInt))
		r.until(fmt.Sprintf("flush.messages of the close topic is %s with sync: %s", want, sync), func() bool { // the controller has it before the broker
			return must.Get(r.kafka.Topics(t.Context(), cfg.Topics.Close))(t)[cfg.Topics.Close].Config["flush.messages"] == want
		})
	}
}

// A pass by hand: it changes nothing in a dry run, takes no lock, and uses no Redis.
func TestReal_APassByHandNeedsNoLock(t *testing.T) { eachDatabase(t, aPassByHand) }

func aPassByHand(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	var report compensator.Report
	sweep := func(what string, closed int, args ...string) {
		t.Helper()
		r.decode(r.must(append([]string{"compensate", "-o", "json"}, args...)...), &report)
		expect.That(t, report.Found == 1 && report.Closed == closed, "%s: %+v", what, report)
	}
	missed := func(id string) {
		t.Helper()
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), r.shop.Producer.Order(id, time.Now().Add(-time.Hour), "virtual"), nil))
	}
	missed("first")
	sweep("a dry run", 0, "--dry-run")
	other := lock.NewRedis(lock.Options{Client: r.redisClient(), Key: r.cfg.Compensator.Lock.Key, Expiry: waitLimit})
	must.Do(t, other.Hold(t.Context(), func(context.Context) error {
		sweep("while another process has the lock", 1)
		return nil
	}))

	missed("second")
	o := must.Get(redis.ParseURL(s.RedisURL))(t)
	proxy := must.Get(testkit.NewProxy(o.Addr))(t)
	defer proxy.Close()
	proxy.Stall()
	r.servers.RedisURL = "redis://" + proxy.Addr() + "/0"
	sweep("Redis hangs", 1)

	missed("third")
	r.servers.RedisURL = "redis://127.0.0.1:" + freePort(t) + "/0" // no server listens there
	sweep("no Redis", 1)
	r.disturbed = true // the orders were never published
	r.check()
}
