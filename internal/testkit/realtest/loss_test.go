package realtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
)

// While the relay does not run, retention deletes the waiting records; or the topic
// is deleted with its commits; or it is recreated below commits that still exist; or a person resets the offsets.
func TestReal_EveryKindOfLossIsRepaired(t *testing.T) {
	eachDatabase(t, everyKindOfLoss)
}

func everyKindOfLoss(t *testing.T, s environ.Servers) {
	for name, lose := range map[string]func(r *rig, topic, group string, ends []int64) (counted int){ // partitions whose loss is noticed
		"retention": func(r *rig, topic, _ string, ends []int64) (counted int) {
			r.deleteRecords(topic)
			for _, end := range ends {
				if end > 0 {
					counted++
				}
			}
			return counted
		},
		"deleted with its commits": func(r *rig, topic, _ string, _ []int64) int {
			r.recreate(topic)
			return 0
		},
		"recreated": func(r *rig, topic, group string, _ []int64) int {
			r.recreate(topic)
			r.commit(group, topic, func(c *kadm.Client, ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
				listed, err := c.ListStartOffsets(ctx, topics...)
				for _, p := range listed[topic] {
					p.Offset = 1000
					listed[topic][p.Partition] = p
				}
				return listed, err
			})
			return r.cfg.Partitions
		},
		"offsets reset to the end": func(r *rig, topic, group string, _ []int64) int {
			r.causes = "records were committed and went nowhere"
			r.commit(group, topic, (*kadm.Client).ListEndOffsets)
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			r.disturbed = true
			bucket := r.cfg.Buckets[2]
			r.start("relay", "closer", "compensator")
			r.firstStart()
			r.signal("relay", syscall.SIGTERM)
			for i := range 12 {
				o := r.shop.Producer.Order(fmt.Sprint("lost", i), time.Now(), "virtual") // 5 seconds
				must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 1}}))
				must.Do(t, r.shop.Publish(t.Context(), o))
			}
			counted := lose(r, bucket.Topic, r.cfg.RelayGroup(bucket), r.ends(bucket.Topic))
			r.start("relay")
			r.settle()
			if counted > 0 {
				r.eventually(func() error {
					return atLeast("lines of the relay on a log that has lost records", strings.Count(r.logs.Tail(1<<20), "the log has lost records"), counted)
				})
			}
			v := r.check() // no record is scheduled again: the keeper has closed the orders
			expect.That(t, v.Closed() == 12, "closed %v, want all 12", v.ByPath)
			t.Logf("closed %v, %v late at most", v.ByPath, v.Latest())
		})
	}
}

// TestReal_AClaimKnowsThatItsTopicIsGone, and how much it had. The topic comes back with fewer partitions.
func TestReal_AClaimKnowsThatItsTopicIsGone(t *testing.T) {
	r := parallelRig(t)
	topic := r.cfg.Buckets[2].Topic
	for range 7 {
		must.Get(r.kafka.Append(t.Context(), topic, 0, []wire.Message{{Key: []byte("k")}}))(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	claims, ended := make(chan wire.Claim, 100), make(chan error, 1)
	go func() {
		ended <- r.kafka.Consume(ctx, r.prefix+"gone", topic, func(ctx context.Context, claim wire.Claim) {
			claims <- claim
			<-ctx.Done()
		})
	}()
	old := map[int]wire.ClaimedLog{}
	for len(old) < r.cfg.Partitions {
		claim := <-claims
		old[claim.Partition] = claim.Log
	}
	r.until("the end of the log is known", func() bool { return old[0].End() == 7 })
	expect.Equal(t, old[0].Gone(t.Context()), false, "gone, while the topic exists")
	must.Do(t, drop.Topics(t.Context(), r.kafka, topic))
	r.until("all logs are gone", func() bool {
		for _, log := range old {
			if !log.Gone(t.Context()) {
				return false
			}
		}
		return true
	})
	r.eventually(func() error {
		_, _, err := r.kafka.Apply(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: 1}})
		return err
	})
	claim := <-claims
	expect.That(t, claim.Partition == 0 && claim.NoCommit && claim.Log.Topic != old[0].Topic, "partition %d, topic id %x", claim.Partition, claim.Log.Topic)
	expect.That(t, old[0].Gone(t.Context()) && old[0].End() == 7, "the old log is there again, or ends at %d", old[0].End())
	cancel()
	expect.NoError(t, <-ended)
}

// firstStart waits until relays and closers have committed a position in each partition. From then on the loss of a log is noticed.
func (r *rig) firstStart() {
	r.t.Helper()
	r.eventually(func() error {
		for topic, group := range scenario.Groups(r.cfg) {
			commits, err := r.kafka.Commits(r.t.Context(), group, topic, r.cfg.Partitions)
			for p, c := range commits {
				if c.Offset < 0 {
					err = fmt.Errorf("%s/%d has no commit", topic, p)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ends returns the end offset of each partition of a topic.
func (r *rig) ends(topic string) []int64 {
	r.t.Helper()
	ends := make([]int64, r.cfg.Partitions)
	for p := range ends {
		r.eventually(func() (err error) {
			_, ends[p], err = r.kafka.Bounds(r.t.Context(), topic, p)
			return err
		})
	}
	return ends
}

// deleteRecords does what retention does.
func (r *rig) deleteRecords(topic string) {
	r.t.Helper()
	must.Do(r.t, testkit.DeleteRecords(r.t.Context(), r.client(), topic))
}

// recreate deletes a topic, and with it its commits, and creates it again.
func (r *rig) recreate(topic string) {
	r.t.Helper()
	r.eventually(func() error {
		deleted := drop.Topics(r.t.Context(), r.kafka, topic)
		states, err := r.kafka.Topics(r.t.Context(), topic)
		if err == nil && len(states) > 0 {
			err = errors.Join(deleted, fmt.Errorf("still there: %v", states))
		}
		return err
	})
	r.eventually(func() error {
		_, _, err := r.kafka.Apply(r.t.Context(), topics.Specs(r.cfg))
		return err
	})
}

// commit commits an offset in each partition for a group without members.
func (r *rig) commit(group, topic string, list testkit.OffsetLister) {
	r.t.Helper()
	must.Do(r.t, testkit.SetCommits(r.t.Context(), r.client(), group, topic, list))
}
