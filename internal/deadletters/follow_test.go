package deadletters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
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

// follower returns a follower of the log with room for most dead letters. Its caller looks.
func (f *fakeLog) follower(most int, unpaid ...string) (*Follower, *fakeOrders) {
	orders := &fakeOrders{unpaid: map[string]bool{}}
	for _, id := range unpaid {
		orders.unpaid[id] = true
	}
	topic := f.topic()
	topic.Orders = orders
	x := NewFollower(*topic, slog.New(slog.DiscardHandler))
	x.most = most
	return x, orders
}

// looked looks once.
func (f *Follower) looked(t *testing.T) *Follower {
	t.Helper()
	_, err := f.Look(t.Context())
	must.Do(t, err)
	return f
}

// keys returns the keys of the letters of a filter, the oldest first.
func (f *Follower) keys(of Filter) string {
	var keys []string
	for _, l := range f.Letters(of) {
		keys = append([]string{l.Key}, keys...)
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

func TestFollower_CountsDeadLettersUntilTheirOrdersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{id: [16]byte{9}}
		began := time.Now()
		log.put(deadTopic, 0, rawOf(dead(t, "a", "failed", now)), began.Add(-80*24*time.Hour))
		log.put(deadTopic, 0, rawOf(dead(t, "b", "not_found", now)), began.Add(-time.Hour))
		log.put(deadTopic, 1, rawOf(dead(t, "stranger", "not_found", now)), began.Add(-25*time.Hour))
		f, orders := log.follower(10, "a", "b")
		var calls atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, interval, func(State) { calls.Add(1) })
		}()
		counts := func(what, open string, oldest time.Duration) {
			t.Helper()
			time.Sleep(interval)
			synctest.Wait()
			seen := f.State()
			got, since := fmt.Sprint(seen.Open), began.Sub(seen.Oldest)
			if seen.Oldest.IsZero() {
				since = 0
			}
			expect.That(t, got == open && since.Truncate(time.Minute) == oldest, "%s: %s, the oldest of %v; want %s, %v", what, got, since, open, oldest)
		}
		counts("two of unpaid orders", "map[failed:1 not_found:1]", 80*24*time.Hour)
		orders.end("a")
		event := wire.DeadLetter(wire.Message{Topic: OutboxOfEvents, Key: []byte("a")}, "outbox", "refused", "")
		log.put(deadTopic, 1, event.Raw(), began.Add(-23*time.Hour))
		counts("one has ended, and its event is new", "map[failed:0 not_found:1 refused:1]", 23*time.Hour)
		time.Sleep(time.Hour)
		counts("the event is a day old", "map[failed:0 not_found:1 refused:0]", time.Hour)
		orders.end("b")
		counts("all have ended", "map[failed:0 not_found:0 refused:0]", 0)
		cancel()
		<-done
		expect.That(t, calls.Load() >= 244, "reported %d times, want once each %v", calls.Load(), interval)
	})
}

// Without a database each dead letter is open for a day.
func TestFollower_CountsForADayWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.put(deadTopic, 0, rawOf(dead(t, "old", "failed", now)), time.Now().Add(-UnknownFor))
		log.put(deadTopic, 0, rawOf(dead(t, "new", "failed", now)), time.Now().Add(time.Minute-UnknownFor))
		f := NewFollower(*log.topic(), slog.New(slog.DiscardHandler))
		expect.Equal(t, f.looked(t).keys(Filter{}), "new", "at first")
		time.Sleep(time.Minute)
		expect.Equal(t, f.looked(t).keys(Filter{}), "", "a minute later")
	})
}

// A recreated topic may have as many records as the old one.
func TestFollower_StartsAgainForARecreatedTopic(t *testing.T) {
	log := &fakeLog{id: [16]byte{1}}
	log.addDeadLetter(t, 0, "old", "failed", now)
	log.addDeadLetter(t, 1, "old", "failed", now)
	f, _ := log.follower(10, "old", "new")
	f.looked(t)
	log.recreate(2)
	log.addDeadLetter(t, 0, "new", "not_found", now)
	f.looked(t)
	got := fmt.Sprintf("%q Open:%v", f.keys(Filter{}), f.State().Open)
	expect.Equal(t, got, `"new" Open:map[failed:0 not_found:1]`, "after the topic was recreated")
}

// Beyond its room a follower counts, and it reads what found no room when there is some.
func TestFollower_ReadsWhatFoundNoRoom(t *testing.T) {
	log := &fakeLog{most: 2}
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprint(i))
		log.addDeadLetter(t, i%2, ids[i], "failed", now)
	}
	f, orders := log.follower(4, ids...)
	s := f.looked(t).State()
	expect.That(t, s.Open["failed"] == 4 && s.Open[Other] == 6 && s.Unlisted == 6, "%+v", s)
	orders.end(ids[:9]...)
	s = f.looked(t).State()
	expect.That(t, f.keys(Filter{}) == "9" && s.Open.Total() == 1 && s.Unlisted == 0, "%q %+v", f.keys(Filter{}), s)
}

// One look asks about some of the known dead letters, each time about others, and reads no record twice.
func TestFollower_AsksAboutEachOrderInTurn(t *testing.T) {
	log := &fakeLog{}
	var ids []string
	for i := range askedAgain + 500 {
		ids = append(ids, fmt.Sprint(i))
		log.addDeadLetter(t, 0, ids[i], "failed", now)
	}
	f, orders := log.follower(MaxLetters, ids...)
	f.looked(t)
	orders.end(ids...)
	orders.asked = 0
	expect.Equal(t, f.looked(t).State().Open.Total(), 500, "open after the first look")
	expect.Equal(t, f.looked(t).State().Open.Total(), 0, "open after the second look")
	expect.Equal(t, orders.asked, askedAgain+500, "orders that the database was asked about")
}

// Without an answer of the database the old numbers stay, and nothing is skipped.
func TestFollower_KeepsItsPlaceWhileTheDatabaseFails(t *testing.T) {
	log := &fakeLog{}
	log.addDeadLetter(t, 0, "a", "failed", now)
	f, orders := log.follower(10, "a", "b")
	f.looked(t)
	log.addDeadLetter(t, 0, "b", "failed", now)
	orders.err = errors.New("gone away")
	s, err := f.Look(t.Context())
	expect.That(t, err != nil && s.Problem == "gone away" && f.keys(Filter{}) == "a", "%q %+v", f.keys(Filter{}), s)
	orders.err = nil
	expect.Equal(t, f.looked(t).keys(Filter{}), "a b", "afterwards")
}

func TestFollower_LogsWhatRetentionDeletesBeforeItsOrderEnds(t *testing.T) {
	var logged bytes.Buffer
	log := &fakeLog{}
	for range 5 {
		log.addDeadLetter(t, 0, "a", "failed", now)
	}
	f, _ := log.follower(10, "a")
	f.logger = slog.New(slog.NewTextHandler(&logged, nil))
	f.looked(t)
	log.retain(0, 5)
	f.looked(t)
	text := logged.String()
	expect.That(t, strings.Contains(text, "retention deleted open dead letters") && strings.Contains(text, "letters=5"), "logged %s", text)
	expect.Equal(t, f.State().Open.Total(), 0, "open")
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
	f, _ := log.follower(10, "a", "b")
	s, _ := f.Look(t.Context())
	expect.That(t, f.keys(Filter{}) == "b" && s.Problem == "no leader" && !s.FailingSince.IsZero() && s.At.IsZero(), "%q %+v", f.keys(Filter{}), s)
	log.fail = nil
	s = f.looked(t).State()
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
	f := NewFollower(Topic{Log: client, Name: deadTopic}, slog.New(slog.DiscardHandler)).looked(t)
	expect.Equal(t, f.keys(Filter{}), "a b c d", "keys")
	deleteRecords(t, broker.ListenAddrs(), 1)
	expect.Equal(t, f.looked(t).keys(Filter{}), "b c d", "deleted")
	must.Do(t, drop.Topics(t.Context(), client, deadTopic))
	s, err := f.Look(t.Context())
	expect.That(t, err != nil && s.Problem != "", "the topic is missing: %v, %+v", err, s)
	create("e", "f", "g", "h")
	expect.Equal(t, f.looked(t).keys(Filter{}), "e f g h", "recreated")
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
