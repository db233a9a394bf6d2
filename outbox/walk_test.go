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

	"orderclose"
)

// byName is a kind whose rows go to the topic that their order's id begins with.
var byName = Kind{Outbox: orderclose.ScheduleOutbox, Route: func(row orderclose.OutboxRow) (string, orderclose.Message, error) {
	topic, _, _ := strings.Cut(row.OrderID, "-")
	if topic == "odd" {
		return "", orderclose.Message{}, errors.New("nobody can read it")
	}
	return topic, orderclose.Message{Key: []byte(row.OrderID), Value: row.Payload}, nil
}}

func named(topic string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%04d", topic, i))
	}
	return ids
}

// TestDispatcher_ATopicThatIsMissingHoldsUpNoOther, however many of its rows are at the
// head, and its rows are published when it is there.
func TestDispatcher_ATopicThatIsMissingHoldsUpNoOther(t *testing.T) {
	for _, head := range []int{5, 10, 40, 1000} {
		synctest.Test(t, func(t *testing.T) {
			long, short := named("long", head), named("short", 20)
			var made atomic.Bool
			s, m := newStore(slices.Concat(long, short)...), &counts{}
			l := &fakeLog{missing: func(topic string) bool { return topic == "long" && !made.Load() }}
			defer runKind(t, s, l, m, 10, byName)()
			time.Sleep(time.Second)
			if n := len(l.keys("short")); n != 20 {
				t.Errorf("%d rows at the head are for a topic that is missing: %d of 20 others were published within a second", head, n)
			}
			time.Sleep(time.Minute)
			s.add("short-fresh")
			time.Sleep(time.Second)
			if n := len(l.keys("short")); n != 21 || len(s.left()) != head {
				t.Errorf("%d rows at the head: a minute later %d of 21 others were published, %d are left", head, n, len(s.left()))
			}
			made.Store(true)
			time.Sleep(lastShun + 2*walkPause)
			if left := s.left(); len(left) != 0 || m.dispatched != head+21 {
				t.Errorf("%d rows at the head: when the topic was made, %d of them are left", head, len(left))
			}
		})
	}
}

// TestDispatcher_WithoutTheDeadLetterTopicOthersGoOn, although thousands of rows cannot be
// published and become dead letters when it is made.
func TestDispatcher_WithoutTheDeadLetterTopicOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const odd = 3000
		var made atomic.Bool
		s, m := newStore(slices.Concat(named("odd", odd), named("short", 20))...), &counts{}
		l := &fakeLog{missing: func(topic string) bool { return topic == "dead" && !made.Load() }}
		defer runKind(t, s, l, m, 100, byName)()
		time.Sleep(5 * time.Minute)
		s.add("short-fresh")
		time.Sleep(time.Second)
		if n := len(l.keys("short")); n != 21 || len(s.left()) != odd {
			t.Errorf("%d of 21 were published, %d are left", n, len(s.left()))
		}
		made.Store(true)
		time.Sleep(asideTime + time.Minute)
		if left := len(s.left()); left != 0 || m.dead["outbox unreadable"] != odd {
			t.Errorf("when the topic was made: %d are left, dead letters %v", left, m.dead)
		}
	})
}

// TestDispatcher_ARowThatBecomesVisibleLateIsPublished, although rows with higher ids were
// seen before it, and rows with lower ones are left.
func TestDispatcher_ARowThatBecomesVisibleLateIsPublished(t *testing.T) {
	for _, late := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(slices.Concat(named("long", 40), named("short", 20))...)
			l := &fakeLog{missing: func(topic string) bool { return topic == "long" }}
			s.held[50] = true // by a transaction that has not ended
			defer runKind(t, s, l, &counts{}, 10, byName)()
			time.Sleep(late)
			s.mu.Lock()
			delete(s.held, 50)
			s.mu.Unlock()
			time.Sleep(2 * walkPause)
			if n := len(l.keys("short")); n != 20 {
				t.Errorf("visible after %v: %d of 20 were published", late, n)
			}
		})
	}
}

// TestDispatcher_ATopicThatStaysMissingIsToldNowAndThen: each minute.
func TestDispatcher_ATopicThatStaysMissingIsToldNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newShunned()
		told := 0
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(lastShun) {
			if _, tell := places.failed(place{"gone", wholeTopic}); tell {
				told++
			}
		}
		if told != 60 {
			t.Errorf("told %d times in an hour, want each minute", told)
		}
		if !places.took(place{"gone", wholeTopic}) || places.took(place{"gone", wholeTopic}) {
			t.Error("that it is there again is news once")
		}
	})
}

// TestDispatcher_NothingIsLostWhileAllTopicsAreUnknown, and the database is not asked
// without end.
func TestDispatcher_NothingIsLostWhileAllTopicsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		s, m := newStore(named("a", 500)...), &counts{}
		l := &fakeLog{missing: func(string) bool { return !back.Load() }}
		defer runKind(t, s, l, m, 100, byName)()
		time.Sleep(10 * time.Minute)
		if n := s.looked(); n > 4000 || len(s.left()) != 500 {
			t.Errorf("%d looks in ten minutes, %d are left", n, len(s.left()))
		}
		back.Store(true)
		time.Sleep(lastShun + 2*walkPause)
		if left := len(s.left()); left != 0 || m.dispatched != 500 {
			t.Errorf("%d are left, %d counted", left, m.dispatched)
		}
	})
}
