package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// pauseTopic is a control topic that can fail.
type pauseTopic struct {
	testkit.Log
	end   int64
	fails bool
	reads int
}

func (l *pauseTopic) Bounds(context.Context, string, int) (first, end int64, err error) {
	if l.reads++; l.fails {
		return 0, 0, errors.New("Kafka is down")
	}
	return 0, l.end, nil
}

func (l *pauseTopic) Append(_ context.Context, topic string, partition int, messages []wire.Message) (time.Time, error) {
	for _, m := range messages {
		m.Appended = time.Now()
		l.Put(testkit.TopicPartition{Topic: topic, Partition: partition}, m)
		l.end++
	}
	return time.Now(), nil
}

// alwaysStore closes every order.
type alwaysStore struct{}

func (alwaysStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return make([]orderclose.Outcome, len(requests)), nil
}

func TestPauses_InTheControlTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &pauseTopic{fails: true}
		control := ops.NewControl(log, "control")
		s := &pausedStore{Wrapped: bisect.Wrapped{Store: alwaysStore{}}, now: time.Now, control: control, mu: make(turn, 1), ignored: func(float64) {}}
		paused := func(path orderclose.Path) (paused bool) {
			t.Helper()
			_, err := s.CloseOrders(t.Context(), path, nil)
			if paused = errors.Is(err, orderclose.ErrPaused); err != nil && !paused {
				t.Error(err)
			}
			return paused
		}
		write := func(p wire.Pause) {
			t.Helper()
			must.Get(control.WritePauses(t.Context(), p))(t)
		}
		if _, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, nil); !errors.Is(err, orderclose.ErrNoOrderAtFault) || errors.Is(err, orderclose.ErrPaused) {
			t.Errorf("before the pauses are known: %v; want the store to count as down", err)
		}
		log.fails = false
		write(wire.Pause{Path: orderclose.PathSweep, Until: time.Now().Add(time.Minute), CreatedAt: time.Now(), Reason: "one"})
		expect.That(t, !paused(orderclose.PathPipeline) && paused(orderclose.PathSweep), "want only sweeps paused")
		write(wire.Pause{Path: orderclose.PathPipeline, Until: time.Now().Add(time.Hour), CreatedAt: time.Now(), Reason: "two"})
		time.Sleep(2 * time.Second)
		expect.That(t, paused(orderclose.PathPipeline), "2 s after a second pause: not paused")
		log.fails = true
		time.Sleep(time.Minute)
		expect.That(t, paused(orderclose.PathPipeline) && !paused(orderclose.PathSweep), "without Kafka: want the long pause on, and the short one ended")
		log.fails = false
		time.Sleep(pauseRetry)
		write(wire.Pause{Path: orderclose.PathPipeline, Until: time.Now(), CreatedAt: time.Now(), Reason: "two"})
		time.Sleep(2 * time.Second)
		expect.That(t, !paused(orderclose.PathPipeline), "2 s after the resume: still paused")
		reads := log.reads
		for range 1000 {
			paused(orderclose.PathPipeline)
		}
		expect.That(t, log.reads <= reads+1, "a thousand closes asked Kafka %d times", log.reads-reads)
	})
}
