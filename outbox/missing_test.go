package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// byName is a kind that routes a row to the topic before the first "-" of its order id.
var byName = Kind{outbox: wire.ScheduleOutbox, route: func(row wire.OutboxRow, _ send.Sender) (string, wire.Message, error) {
	topic, _, _ := strings.Cut(row.OrderID, "-")
	if topic == "odd" {
		return "", wire.Message{}, errors.New("unreadable")
	}
	return topic, wire.Message{Key: []byte(row.OrderID), Value: row.Payload}, nil
}}

func named(topic string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%04d", topic, i))
	}
	return ids
}

// Rows of a missing topic delay no other row, however many of them come first. They are published once the topic exists.
func TestDispatcher_AMissingTopicDelaysNoOtherTopic(t *testing.T) {
	for _, head := range []int{5, 10, 40, 300} {
		synctest.Test(t, func(t *testing.T) {
			long, short := named("long", head), named("short", 20)
			var made atomic.Bool
			s, m := newStore(slices.Concat(long, short)...), newCounts()
			l := &testkit.Log{Count: 3, Missing: func(topic string) bool { return topic == "long" && !made.Load() }}
			defer runKind(t, s, l, m, 10, byName)()
			pass := time.Second + time.Duration(head/10)*shortestPause*3/2 // over all rows, a batch each time
			time.Sleep(pass)
			expect.Equal(t, len(keys(l, "short")), 20, "published of 20 others within %v, with %d rows at the head for a missing topic", pass, head)
			time.Sleep(time.Minute)
			s.add("short-fresh")
			time.Sleep(2 * pass)
			n := len(keys(l, "short"))
			expect.That(t, n == 21 && len(s.left()) == head, "%d rows at the head: a minute later %d of 21 others were published, %d are left", head, n, len(s.left()))
			made.Store(true)
			time.Sleep(5*time.Second + 2*pass) // the rest of the topic, and two passes
			left := s.left()
			expect.That(t, len(left) == 0 && m.dispatched() == head+21, "%d rows at the head: after the topic was created, %d of them are left", head, len(left))
		})
	}
}

// The dead-letter topic is missing and thousands of rows have to become dead letters. They do when the topic is created.
func TestDispatcher_AMissingDeadLetterTopicDelaysNoOtherRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const odd = 600
		var made atomic.Bool
		s, m := newStore(slices.Concat(named("odd", odd), named("short", 20))...), newCounts()
		l := &testkit.Log{Count: 3, Missing: func(topic string) bool { return topic == "dead" && !made.Load() }}
		defer runKind(t, s, l, m, 20, byName)()
		time.Sleep(2 * time.Minute)
		s.add("short-fresh")
		time.Sleep(10 * time.Second)
		expect.That(t, len(keys(l, "short")) == 21 && len(s.left()) == odd, "%d of 21 were published, %d are left", len(keys(l, "short")), len(s.left()))
		made.Store(true)
		time.Sleep(quarantineTime + time.Minute)
		left := len(s.left())
		expect.That(t, left == 0 && m.dead("unreadable") == odd, "after the topic was created: %d are left, dead letters %v", left, m.Value("dead_letters_total"))
	})
}

// The row becomes visible after rows with higher ids, while rows with lower ids are skipped.
func TestDispatcher_ARowThatBecomesVisibleLateIsPublished(t *testing.T) {
	for _, late := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(slices.Concat(named("long", 40), named("short", 20))...)
			l := &testkit.Log{Count: 3, Missing: func(topic string) bool { return topic == "long" }}
			s.held[50] = true // its transaction has not ended
			defer runKind(t, s, l, newCounts(), 10, byName)()
			time.Sleep(late)
			s.mu.Lock()
			delete(s.held, 50)
			s.mu.Unlock()
			time.Sleep(4 * time.Second)
			expect.Equal(t, len(keys(l, "short")), 20, "visible after %v: published of 20", late)
		})
	}
}

// The database is not polled without a pause meanwhile.
func TestDispatcher_NothingIsLostWhileAllTopicsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		s, m := newStore(named("a", 550)...), newCounts()
		l := &testkit.Log{Count: 3, Missing: func(string) bool { return !back.Load() }}
		defer runKind(t, s, l, m, 100, byName)()
		time.Sleep(10 * time.Minute)
		n := s.looked()
		expect.That(t, n <= 4000 && len(s.left()) == 550, "%d polls in ten minutes, %d are left", n, len(s.left()))
		back.Store(true)
		time.Sleep(8 * time.Second)
		if left := len(s.left()); left != 0 || m.dispatched() != 550 {
			t.Errorf("%d are left, %d counted", left, m.dispatched())
		}
	})
}
