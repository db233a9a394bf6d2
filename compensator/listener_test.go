package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeControl is a control topic with losses. It discards the orders that are
// scheduled again.
type fakeControl struct {
	told     []wire.Lost
	position int64
	log      wire.LogID
	failure  error      // of Bounds
	mu       sync.Mutex // of a test that changes told or failure while they are read
}

func (k *fakeControl) Bounds(context.Context, string, int) (first, end int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return 0, int64(len(k.told)), k.failure
}

func (k *fakeControl) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := wire.Fetched{Next: int64(len(k.told)), Log: k.log}
	if at.Log != k.log && at.Log != (wire.LogID{}) {
		lost := wire.Range{Last: at.Offset - 1, Err: errors.New("the topic was deleted and recreated")}
		return wire.Fetched{Lost: &lost, Replaced: true, Log: k.log}, nil
	}
	for _, lost := range k.told[at.Offset:] {
		m := lost.Encode()
		f.Records = append(f.Records, m.Raw())
	}
	return f, nil
}

func (k *fakeControl) Position(context.Context, string, string, int) (int64, error) {
	return k.position, nil
}

func (k *fakeControl) SetPosition(_ context.Context, _, _ string, _ int, offset int64) error {
	k.position = offset
	return nil
}

func (k *fakeControl) DueBetween(context.Context, time.Time, time.Time, orderclose.Order, int) ([]orderclose.Order, error) {
	return nil, nil
}

func (k *fakeControl) GroupByKey(_ context.Context, _ string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	return map[int][]wire.RawRecord{0: records}, nil
}

func (k *fakeControl) Idempotent(func(int)) wire.AppendFunc {
	return func(context.Context, string, int, []wire.RawRecord) (time.Time, error) { return time.Time{}, nil }
}

// A first start is no alarm: one log line reports all its partitions. Lost records
// are an alarm.
func TestListen_EmptyLogsAreLoggedInOneLineWithoutWarning(t *testing.T) {
	const reason = "nothing was committed"
	for _, c := range []struct {
		first, last int64
		want        []string
	}{
		{0, -1, []string{"level=INFO", "without commit", "partitions=20"}},
		{0, 0, []string{"level=WARN", "records lost", "partition=19", "last=0"}},
	} {
		t.Run(fmt.Sprintf("%d to %d", c.first, c.last), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &fakeControl{position: -1}
				for p := range 20 {
					k.told = append(k.told, wire.Lost{Topic: "delay_5m", Partition: p, First: c.first, Last: c.last, Reason: reason})
				}
				var log strings.Builder
				comp := newCompensator(t, Options{
					Store: newStore(0), Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Control: &Control{
						Kafka: k, Store: k, Producers: k, Group: "g", Topic: "control", CloseTopic: "close", MaxDelay: func() time.Duration { return time.Hour },
						Buckets: func() orderclose.Buckets {
							return orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}}
						},
					},
				})
				l := newListener(comp)
				must.Do(t, l.poll(t.Context()))
				l.act(t.Context())
				expect.That(t, l.lost.count == 0 && k.position == 20, "%d losses were not handled, position %d", l.lost.count, k.position)
				var told []string
				for line := range strings.Lines(log.String()) {
					if !strings.Contains(line, "swept") {
						told = append(told, line)
					}
				}
				lines := 1
				if c.last >= c.first {
					lines = 20
				}
				must.That(t, len(told) == lines, "%d lines, want %d: %q", len(told), lines, told)
				for _, want := range c.want {
					expect.That(t, strings.Contains(told[lines-1], want), "%q does not contain %q", told[lines-1], want)
				}
			})
		})
	}
}

// Another process may have committed its position in the recreated topic before this
// one polls. Then only the identity of the log reveals the loss.
func TestListen_ARecreatedControlTopicIsALossAtAnyLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeControl{position: 1, log: wire.LogID{Topic: [16]byte{1}}, told: make([]wire.Lost, 2)}
		l := newListener(newCompensator(t, Options{Store: newStore(0), Control: &Control{
			Kafka: k, Store: k, Producers: k, Group: "g", Topic: "control", CloseTopic: "close", MaxDelay: func() time.Duration { return time.Hour },
			Buckets: func() orderclose.Buckets { return orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}} },
		}}))
		look := func(want int) {
			t.Helper()
			err := l.poll(t.Context())
			must.That(t, err == nil && l.lost.count == want, "%d losses, %v; want %d", l.lost.count, err, want)
		}
		look(1)
		l.act(t.Context())
		k.log.Topic, k.told, k.position = [16]byte{2}, make([]wire.Lost, 3), 2
		look(1 + len(k.told)) // the loss of the topic itself, and the losses in it
		l.act(t.Context())
		look(0)
		expect.That(t, k.position == 3 && l.lost.count == 0, "position %d, %d losses are left", k.position, l.lost.count)
	})
}

// The gauge is 1 until the control topic was read, while a loss is not repaired, and while the topic cannot be read.
func TestListen_SaysWhetherALossIsNotRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, r := &fakeControl{}, testkit.NewMetrics()
		comp := newCompensator(t, Options{
			Registerer: r, Store: newStore(0), Logger: slog.New(slog.DiscardHandler),
			Control: &Control{
				Kafka: k, Store: k, Producers: k, Group: "g", Topic: "control", CloseTopic: "close", MaxDelay: func() time.Duration { return time.Hour },
				Buckets: func() orderclose.Buckets { return nil },
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		open := func(want float64, when string) {
			t.Helper()
			synctest.Wait()
			expect.Equal(t, r.Value("compensator_losses_open"), want, "%s", when)
		}
		open(1, "before the start")
		go comp.listen(ctx)
		open(0, "nothing was lost")
		k.mu.Lock()
		k.told = append(k.told, wire.Lost{Topic: "delay_5m", Last: 9, Reason: "gone"})
		k.mu.Unlock()
		time.Sleep(controlPollInterval)
		open(1, "a loss")
		time.Sleep(gatherTime + 2*controlPollInterval)
		open(0, "the loss is repaired")
		k.mu.Lock()
		k.failure = errors.New("no broker")
		k.mu.Unlock()
		time.Sleep(controlPollInterval)
		open(1, "the topic cannot be read")
	})
}
