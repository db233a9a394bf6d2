package realtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// While the relay does not run, retention deletes the waiting records; or the topic
// is deleted with its commits; or it is recreated below commits that still exist.
func TestReal_EveryKindOfLossIsPublishedAndRepaired(t *testing.T) {
	eachDatabase(t, everyKindOfLoss)
}

func everyKindOfLoss(t *testing.T, s config.Servers) {
	for name, lose := range map[string]func(r *rig, topic, group string, ends []int64) (partitions []int){
		"retention": func(r *rig, topic, _ string, ends []int64) (partitions []int) {
			r.deleteRecords(topic, ends)
			for p, end := range ends {
				if end > 0 {
					partitions = append(partitions, p)
				}
			}
			return partitions
		},
		"deleted with its commits": func(r *rig, topic, _ string, _ []int64) []int {
			r.recreate(topic)
			return []int{0, 1, 2, 3}
		},
		"recreated": func(r *rig, topic, group string, _ []int64) []int {
			r.recreate(topic)
			r.commit(group, topic, 1000)
			return []int{0, 1, 2, 3}
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
			partitions := lose(r, bucket.Topic, r.cfg.RelayGroup(bucket), r.ends(bucket.Topic))
			r.start("relay")
			r.eventually(func() error { return differs(slices.Concat([]int{0, 1, 2, 3}, partitions), r.losses(bucket.Topic)) })
			r.settle()
			// Orders that are overdue by more than the grace are closed by a sweep,
			// the others by records that are scheduled again.
			v := r.check()
			expect.That(t, v.Closed() == 12, "closed %v, want all 12", v.ByPath)
		})
	}
}

// firstStart waits until all parts have reported that they start without a commit, and the compensator has scheduled again
// what may have been lost. It schedules no order again that is created later: the sweep closes those that are never published.
func (r *rig) firstStart() {
	r.t.Helper()
	topics := []string{r.cfg.Topics.Close, r.cfg.Topics.Replay}
	for _, b := range r.cfg.Buckets {
		topics = append(topics, b.Topic)
	}
	r.eventually(func() error {
		published := 0
		for _, topic := range topics {
			published += len(r.losses(topic))
		}
		return atLeast("losses of a first start that are published", published, len(topics)*r.cfg.Partitions)
	})
	var last int64
	r.notices(func(offset int64, _ wire.Lost) { last = offset })
	r.until("the compensator has acted on it", func() bool {
		position, err := r.kafka.Position(r.t.Context(), r.cfg.CompensatorGroup(), r.cfg.Topics.Control, 0)
		return err == nil && position > last
	})
}

// differs returns an error if the losses are of other partitions than want.
func differs(want []int, losses []wire.Lost) error {
	got := []int{}
	for _, l := range losses {
		got = append(got, l.Partition)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("partitions whose loss was published (-want +got):\n%s%+v", diff, losses)
	}
	return nil
}

// losses returns the losses of a topic that were published to the control topic.
func (r *rig) losses(topic string) (all []wire.Lost) {
	r.t.Helper()
	r.notices(func(_ int64, l wire.Lost) {
		if l.Topic == topic {
			all = append(all, l)
		}
	})
	return all
}

// notices calls each with the notices of losses in the control topic, and their offsets.
func (r *rig) notices(each func(offset int64, l wire.Lost)) {
	r.t.Helper()
	control := r.cfg.Topics.Control
	var offsets []int64
	var found []wire.Lost
	r.eventually(func() error {
		offsets, found = nil, nil
		_, end, err := r.kafka.Bounds(r.t.Context(), control, 0)
		if err != nil {
			return err
		}
		return r.kafka.ReadSpan(r.t.Context(), control, kafka.Span{End: end}, func(records []wire.RawRecord) error {
			for _, record := range records {
				m, err := record.Message()
				if err != nil || string(m.Key) != wire.KeyLost {
					continue
				}
				var l wire.Lost
				if err := json.Unmarshal(m.Value, &l); err != nil {
					return err
				}
				offsets, found = append(offsets, m.Offset), append(found, l)
			}
			return nil
		})
	})
	for i, l := range found {
		each(offsets[i], l)
	}
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

// deleteRecords does what retention does: the log then starts at the offsets.
func (r *rig) deleteRecords(topic string, offsets []int64) {
	r.t.Helper()
	var starts kadm.Offsets
	for p, offset := range offsets {
		starts.AddOffset(topic, int32(p), offset, -1)
	}
	deleted, err := r.client().DeleteRecords(r.t.Context(), starts)
	must.Do(r.t, errors.Join(err, deleted.Error()))
}

// recreate deletes a topic, and with it its commits, and creates it again.
func (r *rig) recreate(topic string) {
	r.t.Helper()
	r.eventually(func() error {
		deleted := r.kafka.DeleteTopics(r.t.Context(), topic)
		states, err := r.kafka.Topics(r.t.Context(), topic)
		if err == nil && len(states) > 0 {
			err = errors.Join(deleted, fmt.Errorf("still there: %v", states))
		}
		return err
	})
	r.eventually(func() error {
		_, _, err := r.kafka.Apply(r.t.Context(), ops.TopicSpecs(r.cfg))
		return err
	})
}

// commit commits an offset in each partition for a group without members.
func (r *rig) commit(group, topic string, offset int64) {
	r.t.Helper()
	var offsets kadm.Offsets
	for p := range r.cfg.Partitions {
		offsets.AddOffset(topic, int32(p), offset, -1)
	}
	must.Do(r.t, r.client().CommitAllOffsets(r.t.Context(), group, offsets))
}
