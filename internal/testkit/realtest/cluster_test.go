package realtest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// client returns a Kafka client that is independent of the product.
func (r *rig) client() *kadm.Client {
	r.t.Helper()
	client := must.Get(kadm.NewOptClient(kgo.SeedBrokers(r.servers.Brokers...)))(r.t)
	r.t.Cleanup(client.Close)
	return client
}

// coordinator returns the broker that coordinates a group.
func (r *rig) coordinator(group string) (node int32) {
	r.t.Helper()
	client := r.client()
	r.eventually(func() error {
		found := client.FindGroupCoordinators(r.t.Context(), group)[group]
		node = found.NodeID
		return found.Err
	})
	return node
}

// owned returns an error if a partition has no owner. If a coordinator is killed during a member's first join, that member stays in the group, unknown
// to all, until its session ends.
func (r *rig) owned() error {
	for topic, name := range scenario.Groups(r.cfg) {
		group, err := r.kafka.Group(r.t.Context(), name, topic)
		if err != nil {
			return err
		}
		for p := range r.cfg.Partitions {
			if group.State != "Stable" || group.Owner(p) == nil {
				return fmt.Errorf("%s/%d has no owner in a group that is %s", topic, p, group.State)
			}
		}
	}
	return nil
}

// One of three brokers is killed under load. It leads a third of the partitions, and coordinates a group. Then two of them hang, and status names them.
func TestReal_OneBrokerOfThree(t *testing.T) {
	s := realServers(t)
	t.Parallel()
	c := newCluster(t, &s)
	r := newRig(t, s)
	out, code := r.cli("topics", "check")
	expect.That(t, code == 0, "topics check exits with %d:\n%s", code, out)
	r.start("relay-1", "relay-2", "closer-1", "closer-2", "outbox")
	r.eventually(r.owned)
	r.load(11, 300, 14*time.Second, func() {
		r.created(60)
		broker := r.coordinator(r.cfg.CloserGroup())
		c.broker(broker).kill()
		r.created(170)
		r.until("topics check says which replicas are not in sync", func() bool {
			out, code := r.cli("topics", "check")
			return code == 3 && strings.Contains(out, "have a replica that is not in sync")
		})
		c.broker(broker).start()
	})
	r.settle()
	r.drain()
	r.check()
	frozen := c[:2]
	for _, b := range frozen {
		must.Do(t, b.Signal(syscall.SIGSTOP))
	}
	silent := []string{frozen[0].Addr(), frozen[1].Addr()}
	slices.Sort(silent)
	began := time.Now()
	out, code = r.cli("status")
	t.Logf("with two of three brokers frozen status took %v", time.Since(began))
	for _, b := range frozen {
		must.Do(t, b.Signal(syscall.SIGCONT))
	}
	expect.That(t, code == 6 && strings.HasPrefix(out, "URGENT  brokers silent: 2; "+strings.Join(silent, ", ")),
		"with two of three brokers frozen status exits with %d:\n%s", code, out)
}

// disturbances are played one after another under one load, each after as many orders as disturbEvery.
var disturbances = []struct {
	name string
	play func(r *rig)
}{
	{"three more relays", func(r *rig) { r.start("relay-2", "relay-3", "relay-4") }},
	{"a rolling restart", func(r *rig) {
		for _, part := range []string{"relay-1", "closer-1", "relay-2", "closer-2"} {
			r.signal(part, syscall.SIGTERM)
			r.start(part)
		}
	}},
	{"partitions are added", func(r *rig) {
		r.rewrite("partitions: 4\n", "partitions: 7\n")
		r.readConfig()
		r.makeTopics()
	}},
	{"back to two relays", func(r *rig) {
		r.signal("relay-3", syscall.SIGTERM)
		r.signal("relay-4", syscall.SIGTERM)
	}},
}

const disturbEvery = 60

// Relays and closers come and go in order: no record is in the close topic twice. Then one relay is frozen until the other
// has all its partitions, and one is killed. The checker judges the whole run.
func TestReal_RelaysComeAndGo(t *testing.T) {
	r := parallelRig(t)
	r.start("relay-1", "closer-1", "closer-2")
	r.load(13, disturbEvery*(len(disturbances)+1), 15*time.Second, func() {
		for i, d := range disturbances {
			r.created(disturbEvery * (i + 1))
			t.Log(d.name)
			d.play(r)
		}
	})
	r.settle()
	r.eventually(r.owned)
	// A process that gets no processor until its session ends, or no answer to its commits, repeats what it had in flight.
	orderly, most, log := r.check().Repeated, int64(0), r.logs.String()
	for _, starved := range []string{"membership in the group ended", "commit failed", "join group failed"} {
		if strings.Contains(log, starved) {
			most = r.sent(r.cfg.Topics.Close) / 10
		}
	}
	expect.That(t, int64(orderly) <= most, "%d records are in the close topic twice, at most %d may be, and nothing crashed", orderly, most)

	before := len(r.shop.Created())
	meanwhile := int64(0)
	r.load(14, 300, 15*time.Second, func() {
		r.created(before + 50)
		sent := r.sent(r.cfg.Topics.Close)
		r.send("relay-1", syscall.SIGSTOP)
		r.until("the other relay has all partitions", func() bool { return r.relays() == 1 && r.owned() == nil })
		meanwhile = r.sent(r.cfg.Topics.Close) - sent
		r.send("relay-1", syscall.SIGCONT) // its window is full of records that the other has forwarded
		r.until("it is a member again", func() bool { return r.relays() == 2 && r.owned() == nil })
		r.signal("relay-2", syscall.SIGKILL)
		r.until("the first relay has all partitions", func() bool { return r.relays() == 1 && r.owned() == nil })
	})
	r.settle()
	// Records that were forwarded and not committed are repeated. A relay that does not notice the loss of its partitions, or
	// does not commit, repeats half of all.
	repeated := r.check().Repeated - orderly
	t.Logf("%d records are in the close topic twice after a freeze and a crash; %d were forwarded during the freeze", repeated, meanwhile)
	all := r.sent(r.cfg.Topics.Close)
	expect.That(t, int64(repeated) <= all/4, "%d of %d records are in the close topic twice", repeated, all)
}

// relays returns how many members the group of the first bucket has.
func (r *rig) relays() int {
	b := r.cfg.Buckets[0]
	g, err := r.kafka.Group(r.t.Context(), r.cfg.RelayGroup(b), b.Topic)
	if err != nil || g.State != "Stable" {
		return 0
	}
	return len(g.Members)
}

// sent returns how many records a topic has got.
func (r *rig) sent(topic string) (n int64) {
	r.t.Helper()
	for _, end := range r.ends(topic) {
		n += end
	}
	return n
}
