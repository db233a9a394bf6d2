package deadletters

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// The index behaves like a plain map.
func TestIndex_BehavesLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model, settled, next := newIndex(), map[Position]string{}, map[Position]wire.ResolutionKind{}, [2]int64{}
		position := rapid.Custom(func(t *rapid.T) Position {
			p := rapid.IntRange(0, 1).Draw(t, "partition")
			return Position{p, rapid.Int64Range(0, next[p]+1).Draw(t, "offset")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"addDeadLetter": func(t *rapid.T) {
				p := rapid.IntRange(0, 1).Draw(t, "partition")
				at := Position{p, next[p]}
				next[p] += rapid.SampledFrom([]int64{1, 1, 1, 63, blockLen - 1, 3 * blockLen}).Draw(t, "gap")
				model[at] = rapid.SampledFrom([]string{"failed", "not_found", ""}).Draw(t, "cause")
				x.add(Letter{At: at, Cause: model[at]})
			},
			"settle": func(t *rapid.T) {
				at := position.Draw(t, "position")
				how := rapid.SampledFrom([]wire.ResolutionKind{wire.Redriven, wire.Discarded}).Draw(t, "how")
				if _, pending := model[at]; pending {
					delete(model, at)
					settled[at] = how
				}
				x.resolve(wire.Resolution{Partition: at.Partition, Offset: at.Offset, How: how}, next[at.Partition])
			},
			"forget": func(t *rapid.T) {
				below, gone := position.Draw(t, "below"), 0
				for at := range model {
					if at.Partition == below.Partition && at.Offset < below.Offset {
						delete(model, at)
						gone++
					}
				}
				for at := range settled {
					if at.Partition == below.Partition && at.Offset < below.Offset {
						delete(settled, at)
					}
				}
				if _, n := x.forget(below.Partition, below.Offset); n != gone {
					t.Fatalf("forgot %d pending ones, want %d", n, gone)
				}
			},
			"": func(t *rapid.T) {
				counts := map[string]int{}
				for at, cause := range model {
					counts[cause]++
					if e := x.find(at); e == nil || e.how != pending {
						t.Fatalf("%v is pending, and found as %+v", at, e)
					}
				}
				for at, want := range settled {
					if e := x.find(at); e == nil || resolutions[e.how] != want {
						t.Fatalf("%v is %s, and found as %+v", at, want, e)
					}
				}
				for cause, n := range x.Pending() {
					must.That(t, counts[cause] == n, "%d of %q are pending, want %d", n, cause, counts[cause])
				}
			},
		})
	})
}

// The label of a metric must be valid UTF-8, or /metrics answers with an error and no metric.
func TestIndex_CountsInvalidCausesAsOther(t *testing.T) {
	x := newIndex()
	for i, cause := range []string{"failed", "\xff\xfe", strings.Repeat("x", maxName), strings.Repeat("x", maxName+1)} {
		x.add(Letter{At: Position{0, int64(i)}, Cause: cause})
	}
	p := x.Pending()
	expect.That(t, p["failed"] == 1 && p[Other] == 2 && len(p) == 3, "%d causes, %d dead letters as other; want 3, and 2", len(p), p[Other])
}

// They counted as pending, so the log names their number, as that of the others.
func TestIndex_RetentionDeletesWhatLeftBecauseOfTheBound(t *testing.T) {
	x := newIndex()
	for offset := range int64(5) {
		x.add(Letter{At: Position{0, offset}})
	}
	x.partitions[0].leave()
	x.partitions[0].leave()
	changed, lost := x.forget(0, 3)
	expect.That(t, changed && lost == 3, "changed %v, %d lost; want the 2 that left and one more", changed, lost)
}

func TestCatalog_KnowsWhereTheRecordsOfAnOrderAre(t *testing.T) {
	log := &fakeLog{}
	first := log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 0, "b", "failed", now)
	log.addDeadLetter(t, 1, "a", "failed", now)
	log.resolve(first, wire.Redriven)
	log.addDeadLetter(t, 0, "a", "failed", now)
	c := log.catalog(0)
	if _, _, ok := c.OfOrder(0, "a"); ok {
		t.Error("it knows all before it has read the topic")
	}
	c.fed(t)
	log.addDeadLetter(t, 0, "a", "failed", now) // not read yet
	if offsets, next, ok := c.OfOrder(0, "a"); !ok || next != 4 || !slices.Equal(offsets, []int64{0, 2, 3}) {
		t.Errorf("%v, %d, %v; want the dead letters 0 and 3, the resolution 2, and 4 as the next", offsets, next, ok)
	}
	if offsets, next, ok := c.OfOrder(0, "other"); !ok || next != 4 || len(offsets) > 0 {
		t.Errorf("%v, %d, %v; want none", offsets, next, ok)
	}
	small := log.catalog(2).fed(t)
	if _, _, ok := small.OfOrder(0, "a"); ok {
		t.Error("it knows all although some have left")
	}
}

func TestCatalog_ReadsALetterThatItHasNotIndexedYet(t *testing.T) {
	log := &fakeLog{}
	known := log.addDeadLetter(t, 0, "a", "failed", now)
	c := log.catalog(0).fed(t)
	at := log.addDeadLetter(t, 0, "b", "failed", now)
	log.resolve(known, wire.Discarded)
	log.addDeadLetter(t, 1, "c", "failed", now)
	for at, key := range map[Position]string{known: "a", at: "b", {1, 0}: "c", {0, 2}: "", {0, 3}: "", {0, 1000}: "", {7, 0}: ""} {
		l, err := c.Letter(t.Context(), at)
		if err != nil || (l != nil) != (key != "") || l != nil && (l.Key != key || l.At != at || l.Resolution != "") {
			t.Errorf("%v: %+v, %v; want %q", at, l, err, key)
		}
	}
}

func TestCatalog_FollowsATopicOfABroker(t *testing.T) {
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	defer broker.Close()
	client := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	defer client.Close()
	create := func(keys ...string) {
		t.Helper()
		if _, _, err := client.Apply(t.Context(), []kafka.TopicSpec{{Name: deadTopic, Partitions: 1, Replication: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			must.Get(client.Append(t.Context(), deadTopic, 0, []wire.Message{dead(t, key, "failed", now)}))(t)
		}
	}
	create("a", "b", "c", "d")
	c := NewCatalog(client, deadTopic, slog.New(slog.DiscardHandler)).fed(t)
	expect.Equal(t, c.keys(t, Query{}), "d c b a", "keys")
	deleteRecords(t, broker.ListenAddrs(), 1)
	l := must.Get(c.List(t.Context(), Query{}))(t)
	expect.That(t, len(l.Letters) == 3 && l.Gone == 1, "deleted: %d letters, %d gone", len(l.Letters), l.Gone)
	if got := c.fed(t).keys(t, Query{}); got != "d c b" || c.State().Letters != 3 {
		t.Errorf("deleted: %q, %s", got, brief(c.State()))
	}
	must.Do(t, client.DeleteTopics(t.Context(), deadTopic))
	if err := c.poll(t.Context()); err == nil || c.State().Problem == "" {
		t.Errorf("the topic is missing: %v, %s", err, brief(c.State()))
	}
	create("e", "f", "g", "h")
	if got := c.fed(t).keys(t, Query{}); got != "h g f e" || c.State().Letters != 4 {
		t.Errorf("recreated: %q, %s", got, brief(c.State()))
	}
}

// deleteRecords deletes the records below an offset.
func deleteRecords(t *testing.T, brokers []string, below int64) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = below
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic, topic.Partitions = deadTopic, append(topic.Partitions, p)
	req := kmsg.NewDeleteRecordsRequest()
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(context.Background(), client)
	must.That(t, err == nil && res.Topics[0].Partitions[0].ErrorCode == 0, "%v %v", res, err)
}
