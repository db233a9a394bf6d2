package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// events is the partition that the workers under test serve.
var events = testkit.TopicPartition{Topic: "events"}

// eventLog is a log of events.
type eventLog struct{ testkit.Log }

func (l *eventLog) doneBelow() int64 { return l.DoneBelow(events) }

// causes returns the causes of the dead letters.
func (l *eventLog) causes() (all []string) {
	for _, m := range l.Appended()["dead"] {
		cause, _ := m.Header(wire.HeaderCause)
		all = append(all, string(m.Key)+" "+cause)
	}
	slices.Sort(all)
	return all
}

// add appends the event of a closed order to the log.
func (l *eventLog) add(t *testing.T, id string, skus ...string) {
	t.Helper()
	l.Put(events, closed(t, id, skus...))
}

// closed returns the event of a closed order.
func closed(t *testing.T, id string, skus ...string) wire.Message {
	t.Helper()
	e := orderclose.OrderClosed{OrderID: id}
	for _, sku := range skus {
		e.Release = append(e.Release, orderclose.Release{SKU: sku, Quantity: 2, Key: id + "/" + sku})
	}
	value := must.Get(e.Encode())(t)
	return wire.Message{Key: []byte(id), Value: value}
}

func (l *eventLog) put(key, value string) {
	l.Put(events, wire.Message{Key: []byte(key), Value: []byte(value)})
}

// The events may have any configured type.
func TestWorker_ReadsTheConfiguredEventType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := &eventLog{}, &service{}
		value := must.Get(orderclose.OrderClosed{Type: "order.expired", OrderID: "a",
			Release: []orderclose.Release{{SKU: "ink", Quantity: 2, Key: "a/ink"}}}.Encode())(t)
		log.put("a", string(value))
		log.add(t, "b", "ink") // of another type
		w := must.Get(New(Options{Log: log, Releaser: s, Group: "g", EventsTopic: "events", DeadLetterTopic: "dead", Event: "order.expired"}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.Do(t, w.Run(ctx))
		if diff := cmp.Diff(map[string]int{"a/ink": 1}, s.back); diff != "" || log.doneBelow() != 2 {
			t.Errorf("done below %d, released (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

// service is a stock service.
type service struct {
	answer func(r Request) error // nil: succeeds

	mu    sync.Mutex
	calls []time.Time
	back  map[string]int // successful releases by key
	of    map[string][]time.Duration
	began time.Time
}

func (s *service) Release(ctx context.Context, r Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.back == nil {
		s.back, s.of, s.began = map[string]int{}, map[string][]time.Duration{}, time.Now()
	}
	s.calls = append(s.calls, time.Now())
	s.of[r.Key] = append(s.of[r.Key], time.Since(s.began))
	if s.answer != nil {
		if err := s.answer(r); err != nil {
			return err
		}
	}
	s.back[r.Key]++
	if s.back[r.Key] > 1 {
		return ErrAlready
	}
	return ctx.Err()
}

func (s *service) count() (calls, back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls), len(s.back)
}

func runWorker(t *testing.T, log *eventLog, s Releaser) (stop func()) {
	t.Helper()
	w := must.Get(New(Options{Log: log, Releaser: s, Group: "g", EventsTopic: "events", DeadLetterTopic: "dead"}))(t)
	return testkit.Start(t, w.Run)
}

func TestWorker_ReleasesEachSKUAndSkipsEventsWithoutStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := &eventLog{}, &service{}
		log.add(t, "a", "ink", "pen")
		log.add(t, "nothing held")
		log.put("b", `{"specversion":"1.0","id":"x","type":"order.paid","data":{}}`)
		log.put("c", `{"specversion":`)
		for i := range 50 {
			log.add(t, fmt.Sprint(i), "ink")
		}
		defer runWorker(t, log, s)()
		time.Sleep(time.Second)
		if calls, back := s.count(); calls != 52 || back != 52 || log.doneBelow() != 54 {
			t.Errorf("%d calls, %d released, done below %d; want 52, 52, 54", calls, back, log.doneBelow())
		}
		if diff := cmp.Diff([]string{"c unreadable"}, log.causes()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// The event is retried after 1, 2 and 4 minutes and then becomes a dead letter.
func TestWorker_RetriesAFailureWhileOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{}
		s := &service{answer: func(r Request) error {
			switch r.SKU {
			case "broken":
				return errors.New("500")
			case "unknown":
				return ErrRefused
			}
			return nil
		}}
		log.add(t, "bad", "broken", "pen")
		log.add(t, "refused", "unknown", "pen")
		for i := range 5 {
			log.add(t, fmt.Sprint(i), "ink")
		}
		defer runWorker(t, log, s)()
		time.Sleep(time.Second)
		if _, back := s.count(); back != 7 || log.doneBelow() != 0 {
			t.Errorf("after a second %d released, done below %d; want 7, and 0", back, log.doneBelow())
		}
		if diff := cmp.Diff([]string{"refused release_refused"}, log.causes()); diff != "" {
			t.Errorf("dead letters after a second (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		tries := s.of["bad/broken"]
		if len(tries) != 4 || len(s.of["bad/pen"]) != 1 {
			t.Fatalf("tried at %v, its other SKU at %v; want 4 tries and 1", tries, s.of["bad/pen"])
		}
		for i, least := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
			if wait := tries[i+1] - tries[i]; wait < least || wait > least+least/10+time.Millisecond {
				t.Errorf("retry %d came after %v, want %v and up to a tenth", i+1, wait, least)
			}
		}
		if diff := cmp.Diff([]string{"bad release_failed", "refused release_refused"}, log.causes()); diff != "" || log.doneBelow() != 7 {
			t.Errorf("done below %d, dead letters (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

// The service is not called all the time while it is unavailable.
func TestWorker_AnOutageUsesUpNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{}
		back := time.Now().Add(time.Hour)
		s := &service{answer: func(Request) error {
			if time.Now().Before(back) {
				return fmt.Errorf("%w: connection refused", ErrUnavailable)
			}
			return nil
		}}
		for i := range 2500 {
			log.add(t, fmt.Sprint(i), "ink")
		}
		defer runWorker(t, log, s)()
		time.Sleep(59 * time.Minute)
		if calls, _ := s.count(); calls > 800 || log.doneBelow() != 0 || len(log.causes()) > 0 {
			t.Errorf("%d calls, done below %d, dead letters %v", calls, log.doneBelow(), log.causes())
		}
		time.Sleep(6 * time.Minute)
		if _, released := s.count(); released != 2500 || log.doneBelow() != 2500 || len(log.causes()) > 0 {
			t.Errorf("%d released, done below %d, dead letters %v", released, log.doneBelow(), log.causes())
		}
	})
}

// The repeated calls have the same keys.
func TestWorker_AfterAStopOnlyOpenEventsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{}
		var mu sync.Mutex
		failing := true
		s := &service{answer: func(r Request) error {
			mu.Lock()
			defer mu.Unlock()
			if r.SKU == "broken" && failing {
				return errors.New("500")
			}
			return nil
		}}
		log.add(t, "first", "broken", "pen")
		for i := range 5 {
			log.add(t, fmt.Sprint(i), "ink")
		}
		stop := runWorker(t, log, s)
		time.Sleep(time.Second)
		stop()
		mu.Lock()
		failing = false
		mu.Unlock()
		defer runWorker(t, log, s)()
		time.Sleep(time.Second)
		if calls, back := s.count(); calls != 9 || back != 7 || s.back["first/pen"] != 2 || log.doneBelow() != 6 {
			t.Errorf("%d calls, released %v, done below %d; want a repeat of the first order's only", calls, s.back, log.doneBelow())
		}
	})
}
