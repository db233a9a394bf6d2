package realtest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/ops"
)

// client returns a Kafka client that is independent of the product.
func (r *rig) client() *kadm.Client {
	r.t.Helper()
	client, err := kadm.NewOptClient(kgo.SeedBrokers(r.servers.Brokers...))
	if err != nil {
		r.t.Fatal(err)
	}
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

// electLeaders makes the first replica of every partition its leader again.
func (r *rig) electLeaders() {
	r.t.Helper()
	client := r.client()
	r.eventually(func() error {
		elected, err := client.ElectLeaders(r.t.Context(), kadm.ElectPreferredReplica, nil)
		r.t.Logf("partitions with another leader: %v", elected)
		return err
	})
}

// owned returns an error if a partition has no owner. If a coordinator is killed
// during a member's first join, that member stays in the group, unknown to all, until
// its session ends.
func (r *rig) owned() error {
	groups := map[string]string{r.cfg.Topics.Close: r.cfg.CloserGroup()}
	for _, b := range r.cfg.Buckets {
		groups[b.Topic] = r.cfg.RelayGroup(b)
	}
	for topic, name := range groups {
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

func TestReal_OneBrokerOfThree(t *testing.T) {
	t.Parallel()
	s := realServers(t)
	c := newCluster(t, &s)
	t.Run("killed and back", func(t *testing.T) {
		r := newRig(t, s)
		if out, code := r.cli("topics", "check"); code != 0 {
			t.Errorf("topics check exits with %d:\n%s", code, out)
		}
		r.start("relay-1", "relay-2", "closer-1", "closer-2", "outbox")
		r.eventually(r.owned)
		r.load(11, 300, 14*time.Second, func() {
			<-time.After(3 * time.Second)
			broker := r.coordinator(r.cfg.CloserGroup()) // it also leads a third of the partitions
			c.broker(broker).kill()
			<-time.After(5 * time.Second)
			c.broker(broker).start()
		})
		r.settle()
		r.drain()
		r.check()
	})
	t.Run("leaders and coordinator move", func(t *testing.T) {
		r := newRig(t, s)
		r.start("relay-1", "relay-2", "closer-1", "closer-2")
		r.eventually(r.owned)
		r.load(12, 300, 14*time.Second, func() {
			<-time.After(3 * time.Second)
			broker := r.coordinator(r.cfg.RelayGroup(r.cfg.Buckets[1]))
			c.broker(broker).stop()
			<-time.After(2 * time.Second)
			c.broker(broker).start()
			<-time.After(2 * time.Second) // its replicas catch up
			r.electLeaders()
		})
		r.settle()
		r.check() // a commit that the old coordinator did not accept may be repeated
	})
}

// While leaders move, a status and a forecast ask the new leaders. Afterwards neither shows a problem.
func TestReal_AStatusWhileLeadersMove(t *testing.T) {
	t.Parallel()
	s := realServers(t)
	c := newCluster(t, &s)
	r := newRig(t, s)
	r.start("relay-1", "closer-1")
	r.eventually(r.owned)
	r.load(15, 100, 5*time.Second, func() {})
	ask := func() error {
		p := ops.Pipeline{Config: r.cfg, Kafka: r.kafka}
		status, err := p.Status(t.Context())
		if err != nil || status.Problems() > 0 {
			return fmt.Errorf("status: %v, %+v", err, status.Topics)
		}
		forecast, err := p.Forecast(t.Context(), ops.ForecastEdges(time.Minute))
		if err != nil || forecast.Problems() > 0 {
			return fmt.Errorf("forecast: %v, %+v", err, forecast.Buckets)
		}
		return nil
	}
	r.eventually(ask)
	c.broker(1).stop()
	<-time.After(2 * time.Second)
	c.broker(1).start()
	<-time.After(3 * time.Second) // its replicas catch up
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		<-time.After(100 * time.Millisecond)
		r.electLeaders()
	}()
	asked, problems := 0, 0
	for over := false; !over; asked++ {
		select {
		case <-moved:
			over = true
		default:
		}
		if err := ask(); err != nil {
			problems++ // a broker that is busy may need longer than the command waits for a leader
		}
	}
	r.eventually(ask)
	t.Logf("asked %d times while leaders moved, %d with a problem", asked, problems)
	r.settle()
	r.check()
}

func TestReal_FromOneRelayToFourAndBack(t *testing.T) {
	t.Parallel()
	withoutRepeats(t, func(r *rig) {
		r.start("relay-1", "closer")
		r.load(13, 300, 15*time.Second, func() {
			for _, relay := range []string{"relay-2", "relay-3", "relay-4"} {
				<-time.After(1500 * time.Millisecond)
				r.start(relay)
			}
			<-time.After(2 * time.Second)
			for _, relay := range []string{"relay-1", "relay-3", "relay-4"} {
				<-time.After(1500 * time.Millisecond)
				r.signal(relay, syscall.SIGTERM)
			}
		})
	})
}

func TestReal_ARollingRestart(t *testing.T) {
	t.Parallel()
	withoutRepeats(t, func(r *rig) {
		r.start("relay-1", "relay-2", "closer-1", "closer-2")
		r.load(14, 300, 15*time.Second, func() {
			for _, part := range []string{"relay-1", "closer-1", "relay-2", "closer-2"} {
				<-time.After(2500 * time.Millisecond)
				r.signal(part, syscall.SIGTERM)
				r.start(part)
			}
		})
	})
}

// frozenFor is longer than the group's session timeout.
const frozenFor = 9 * time.Second

// The relay wakes with a window full of due records that another relay has forwarded
// meanwhile.
func TestReal_AFrozenRelayDoesNotRepeatWhatOthersDid(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	r.start("relay-1", "relay-2", "closer")
	const orders, over = 400, 18 * time.Second
	r.load(15, orders, over, func() {
		<-time.After(4 * time.Second)
		r.freeze("relay-1", frozenFor)
	})
	r.settle()
	r.checkAfterCrash(r.check().Repeated, orders, over)
}

// The take-over needs the session timeout of 6 seconds, and the time for two members
// to rebalance.
func TestReal_TheOtherRelayTakesOverFromAKilledOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	r.start("relay-1", "relay-2", "closer")
	r.eventually(r.owned)
	const orders, over = 400, 15 * time.Second
	r.load(17, orders, over, func() {
		<-time.After(6 * time.Second)
		r.signal("relay-1", syscall.SIGKILL)
	})
	r.settle()
	r.checkAfterCrash(r.check().Repeated, orders, over)
}

// checkAfterCrash allows as many duplicates as records were forwarded and not committed: those of 3 s,
// because a commit, due each 200 ms, waits for a broker that is busy with other tests: at a load of 40 those of 2.3 s
// were seen. A relay that does not commit repeats twice as many.
func (r *rig) checkAfterCrash(repeated, orders int, over time.Duration) {
	r.t.Helper()
	if most := int(time.Duration(orders) * 3 * time.Second / over); repeated > most {
		r.t.Errorf("%d are in the close topic twice, and at most %d were in flight", repeated, most)
	}
}

func TestReal_PartitionsAreAddedUnderLoad(t *testing.T) {
	t.Parallel()
	withoutRepeats(t, func(r *rig) {
		r.start("relay-1", "relay-2", "closer-1", "closer-2")
		r.load(16, 300, 16*time.Second, func() {
			<-time.After(3 * time.Second)
			r.rewrite("partitions: 4\n", "partitions: 7\n")
			r.must("topics", "apply")
		})
		for _, b := range r.cfg.Buckets {
			r.until("each partition of "+b.Topic+" has an owner", func() bool {
				group, err := r.kafka.Group(t.Context(), r.cfg.RelayGroup(b), b.Topic)
				for p := range 7 {
					if err != nil || group.Owner(p) == nil {
						return false
					}
				}
				return true
			})
		}
	})
}

// withoutRepeats plays a round in which nothing crashes, and checks that no record is in the close topic twice. On a busy
// machine a process may get no processor until its session ends, or no answer to its commits. Then it repeats what it had in
// flight. A round with repeats is played again, twice at most, if the log of a process says so.
func withoutRepeats(t *testing.T, play func(r *rig)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		r := newRig(t, realServers(t))
		play(r)
		r.settle()
		repeated := r.check().Repeated
		if repeated == 0 {
			return
		}
		log := r.logs.String()
		starved := strings.Contains(log, "membership in the group ended") || strings.Contains(log, "commit failed")
		if attempt == 3 || !starved {
			t.Fatalf("%d records are in the close topic twice, in round %d", repeated, attempt)
		}
	}
}
