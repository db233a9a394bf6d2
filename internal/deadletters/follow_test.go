package deadletters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// follower returns a follower of the log with room for most dead letters. Its caller reads.
func (f *fakeLog) follower(most int) *Follower {
	x := NewFollower(f, deadTopic, slog.New(slog.DiscardHandler))
	x.index.most = most
	return x
}

// fed reads once.
func (f *Follower) fed(t *testing.T) *Follower {
	t.Helper()
	err := f.read(t.Context())
	must.Do(t, err)
	f.note(err, time.Now())
	return f
}

// keys returns the keys of the letters of a filter.
func (f *Follower) keys(of Filter) string {
	var keys []string
	for _, l := range f.Letters(of) {
		keys = append(keys, l.Key)
	}
	return strings.Join(keys, " ")
}

// retain deletes the records of a partition below an offset.
func (f *fakeLog) retain(p int, below int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start[p] = below
}

// recreate deletes and recreates the dead-letter topic.
func (f *fakeLog) recreate(id byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records, f.start, f.id = map[string][2][]wire.RawRecord{}, [2]int64{}, [16]byte{id}
}

const interval = 15 * time.Second

func TestFollower_ReportsThePendingDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{id: [16]byte{9}}
		log.addDeadLetter(t, 0, "a", "failed", now)
		log.addDeadLetter(t, 0, "b", "not_found", now)
		var seen State
		var calls int
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewFollower(log, deadTopic, slog.New(slog.DiscardHandler)).Run(ctx, interval, func(s State) { seen = s; calls++ })
		}()
		counts := func(what, pending string, oldest time.Time) {
			t.Helper()
			time.Sleep(interval)
			synctest.Wait()
			got := fmt.Sprint(seen.Pending)
			expect.That(t, got == pending && seen.Oldest.Equal(oldest), "%s: %s, the oldest of %v; want %s, %v", what, got, seen.Oldest, pending, oldest)
		}
		counts("two", "map[failed:1 not_found:1]", now.Add(-time.Hour))
		later := dead(t, "c", "failed", now)
		log.put(deadTopic, 1, later.Raw(), now)
		must.Get(log.topic().Run(t.Context(), redrive(Filter{Order: "a"}), nil))(t)
		must.Get(log.topic().Run(t.Context(), redrive(Filter{Order: "b"}), nil))(t)
		counts("one settled, one new", "map[failed:1 not_found:0]", now)
		log.retain(1, 1)
		counts("retention", "map[failed:0 not_found:0]", time.Time{})
		log.mu.Lock()
		log.records[deadTopic] = [2][]wire.RawRecord{}
		log.start[1] = 0
		log.mu.Unlock()
		log.addDeadLetter(t, 0, "again", "failed", now)
		counts("recreated, shorter", "map[failed:1 not_found:0]", now.Add(-time.Hour))
		log.recreate(1)
		for _, id := range []string{"d", "e", "f"} {
			log.addDeadLetter(t, 0, id, "not_found", now)
		}
		counts("recreated, longer", "map[failed:0 not_found:3]", now.Add(-time.Hour))
		cancel()
		<-done
		expect.That(t, calls == 6, "reported %d times, want once each %v", calls, interval)
	})
}

// A recreated topic may have as many records as the old one.
func TestFollower_StartsAgainForARecreatedTopic(t *testing.T) {
	log := &fakeLog{id: [16]byte{1}}
	log.addDeadLetter(t, 0, "old", "failed", now)
	log.addDeadLetter(t, 1, "old", "failed", now)
	f := log.follower(10).fed(t)
	log.recreate(2)
	log.addDeadLetter(t, 0, "new", "not_found", now)
	f.fed(t)
	got := fmt.Sprintf("%q Pending:%v", f.keys(Filter{}), f.State().Pending)
	expect.Equal(t, got, `"new" Pending:map[failed:0 not_found:1]`, "after the topic was recreated")
}

func TestFollower_FindsDeadLettersByFilter(t *testing.T) {
	log := &fakeLog{most: 2}
	at := log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 1, "b", "not_found", now)
	log.addDeadLetter(t, 0, "c", "failed", now)
	f := log.follower(10).fed(t)
	expect.Equal(t, f.keys(Filter{}), "a c b", "all")
	expect.Equal(t, f.keys(Filter{Cause: "failed"}), "a c", "by cause")
	expect.Equal(t, f.keys(Filter{Order: "b", Source: "order-close", Stage: "closer"}), "b", "by order, source and stage")
	must.Get(log.topic().Run(t.Context(), redrive(Filter{Positions: []Position{at}}), nil))(t)
	expect.Equal(t, f.fed(t).keys(Filter{}), "c b", "one was redriven")
	l := f.Letters(Filter{})[0]
	expect.That(t, l.Detail == "in words" && l.Record.Value == nil, "%+v", l)
}

// Beyond its room a follower counts, and it reads again what found no room when there is some.
func TestFollower_ReadsAgainWhatFoundNoRoom(t *testing.T) {
	log := &fakeLog{most: 3}
	var at []Position
	for i := range 10 {
		at = append(at, log.addDeadLetter(t, i%2, fmt.Sprint(i), "failed", now))
	}
	f := log.follower(4).fed(t)
	s := f.State()
	expect.That(t, s.Pending["failed"] == 4 && s.Pending[Other] == 6 && s.Unlisted == 6, "%+v", s)
	must.Get(log.topic().Run(t.Context(), redrive(Filter{Positions: at[:9]}), nil))(t)
	f.fed(t)
	s = f.State()
	expect.That(t, f.keys(Filter{}) == "9" && s.Pending.Total() == 1 && s.Unlisted == 0, "%q %+v", f.keys(Filter{}), s)
}

func TestFollower_LogsWhatRetentionDeletesBeforeAPersonActed(t *testing.T) {
	var logged bytes.Buffer
	log := &fakeLog{}
	for i := range 5 {
		log.addDeadLetter(t, 0, fmt.Sprint(i), "failed", now)
	}
	f := log.follower(2)
	f.logger = slog.New(slog.NewTextHandler(&logged, nil))
	f.fed(t)
	log.retain(0, 5)
	f.fed(t)
	text := logged.String()
	expect.That(t, strings.Contains(text, "retention deleted pending dead letters") && strings.Contains(text, "letters=5"), "logged %s", text)
	expect.Equal(t, f.State().Pending.Total(), 0, "pending")
}

func TestFollower_APartitionThatFailsHoldsUpNoOther(t *testing.T) {
	log := &fakeLog{}
	log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 1, "b", "failed", now)
	log.fail = func(partition int) error {
		if partition == 0 {
			return errors.New("no leader")
		}
		return nil
	}
	f := log.follower(10)
	err := f.read(t.Context())
	s := f.note(err, now)
	expect.That(t, f.keys(Filter{}) == "b" && s.Problem == "no leader" && s.FailingSince.Equal(now) && s.At.IsZero(), "%q %+v", f.keys(Filter{}), s)
	log.fail = nil
	s = f.fed(t).State()
	expect.That(t, f.keys(Filter{}) == "a b" && s.Problem == "" && s.FailingSince.IsZero() && !s.At.IsZero(), "%q %+v", f.keys(Filter{}), s)
}

func TestFollower_FollowsATopicOfABroker(t *testing.T) {
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	defer broker.Close()
	client := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	defer client.Close()
	create := func(keys ...string) {
		t.Helper()
		_, _, err := client.Apply(t.Context(), []kafka.TopicSpec{{Name: deadTopic, Partitions: 1, Replication: 1}})
		must.That(t, err == nil, "%v", err)
		for _, key := range keys {
			must.Get(client.Append(t.Context(), deadTopic, 0, []wire.Message{dead(t, key, "failed", now)}))(t)
		}
	}
	create("a", "b", "c", "d")
	f := NewFollower(client, deadTopic, slog.New(slog.DiscardHandler)).fed(t)
	expect.Equal(t, f.keys(Filter{}), "a b c d", "keys")
	deleteRecords(t, broker.ListenAddrs(), 1)
	expect.Equal(t, f.fed(t).keys(Filter{}), "b c d", "deleted")
	must.Do(t, drop.Topics(t.Context(), client, deadTopic))
	err := f.read(t.Context())
	s := f.note(err, now)
	expect.That(t, err != nil && s.Problem != "", "the topic is missing: %v, %+v", err, s)
	create("e", "f", "g", "h")
	expect.Equal(t, f.fed(t).keys(Filter{}), "e f g h", "recreated")
}

// deleteRecords deletes the records below an offset.
func deleteRecords(t *testing.T, brokers []string, below int64) {
	t.Helper()
	client := must.Get(kadm.NewOptClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(deadTopic, 0, below, -1)
	must.Do(t, must.Get(client.DeleteRecords(t.Context(), offsets))(t).Error())
}
