package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// restarted returns the store of a compensator that was started now.
func restarted(log ops.ControlLog, keeper pauseKeeper) (s *pausedStore, ignores *bool) {
	ignores = new(bool)
	return &pausedStore{
		Wrapped: bisect.Wrapped{Store: alwaysStore{}}, now: time.Now, logger: slog.New(slog.DiscardHandler), ignored: func(is float64) { *ignores = is == 1 },
		name: "order-close", keeper: keeper, control: ops.NewControl(log, "control"), mu: make(turn, 1),
	}, ignores
}

func sweepAnOrder(t *testing.T, s *pausedStore) error {
	t.Helper()
	_, err := s.CloseOrders(t.Context(), orderclose.PathSweep, nil)
	return err
}

func TestPauses_ACompensatorWithoutKafkaObeysTheKeptPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1, ContextTimeoutEnabled: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() }})
		defer client.Close()
		log := &pauseTopic{}
		keeper := redisPauses{client, "lock-pause-"}
		s, _ := restarted(log, keeper)
		pause := func(lasting time.Duration) {
			t.Helper()
			must.Get(ops.NewControl(log, "control").Pause(t.Context(), []orderclose.Path{orderclose.PathSweep}, "", lasting, "r", lasting == 0))(t)
			time.Sleep(2 * time.Second)
			on := must.Get(s.read(t.Context(), false))(t)
			s.keep(t.Context(), on)
		}
		pause(time.Hour)
		log.fails = true
		s, ignores := restarted(log, keeper)
		if err := sweepAnOrder(t, s); !errors.Is(err, orderclose.ErrPaused) || !errors.Is(err, orderclose.ErrNoOrderAtFault) {
			t.Errorf("during the kept pause: %v", err)
		}
		if _, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, nil); err == nil || errors.Is(err, orderclose.ErrPaused) {
			t.Errorf("a close of the pipeline: %v; want it to wait for Kafka", err)
		}
		time.Sleep(time.Hour)
		if err := sweepAnOrder(t, s); err != nil || *ignores {
			t.Errorf("after the kept pause: %v, ignored %v", err, *ignores)
		}
		log.fails = false
		time.Sleep(pauseRetry)
		pause(time.Hour)
		pause(0) // resumed
		log.fails = true
		if s, _ = restarted(log, keeper); sweepAnOrder(t, s) != nil {
			t.Error("a pause that was ended is obeyed")
		}
	})
}

func TestPauses_ASweepWaitsForUnknownPausesAndThenGoesOn(t *testing.T) {
	for name, keeper := range map[string]pauseKeeper{"no copy": nil, "an empty copy": fakeKeeper{}, "the copy is down too": fakeKeeper{errors.New("refused")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &pauseTopic{fails: true}
				s, ignores := restarted(log, keeper)
				for range 10 {
					if err := sweepAnOrder(t, s); !errors.Is(err, orderclose.ErrNoOrderAtFault) || errors.Is(err, orderclose.ErrPaused) || *ignores {
						t.Fatalf("within the wait: %v, ignored %v", err, *ignores)
					}
					time.Sleep(59 * time.Second)
				}
				time.Sleep(time.Minute)
				if err := sweepAnOrder(t, s); err != nil || !*ignores {
					t.Errorf("after the wait: %v, ignored %v", err, *ignores)
				}
				time.Sleep(pauseRetry)
				log.fails = false
				if err := sweepAnOrder(t, s); err != nil || *ignores {
					t.Errorf("when Kafka is back: %v, ignored %v", err, *ignores)
				}
			})
		})
	}
}

type fakeKeeper struct{ err error }

func (k fakeKeeper) KeepPause(context.Context, string, time.Time) error { return k.err }
func (k fakeKeeper) KeptPause(context.Context, string) (time.Time, bool, error) {
	return time.Time{}, false, k.err
}

// The clock of the operator's machine is two hours behind.
func TestPauses_LastAsLongAsTheOperatorSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &pauseTopic{}
		behind := time.Now().Add(-2 * time.Hour)
		p := wire.Pause{Path: orderclose.PathSweep, CreatedAt: behind, Until: behind.Add(time.Hour), Reason: "r"}
		must.Get(ops.NewControl(log, "control").WritePauses(t.Context(), p))(t)
		s, _ := restarted(log, nil)
		time.Sleep(59 * time.Minute)
		expect.Is(t, sweepAnOrder(t, s), orderclose.ErrPaused, "after 59 minutes")
		time.Sleep(2 * time.Minute)
		if err := sweepAnOrder(t, s); err != nil {
			t.Errorf("after 61 minutes: %v", err)
		}
	})
}

// The compensator that kept the copy has not run since yesterday: an operator may have paused sweeps since.
func TestPausedStore_AnOldCopySaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ignores := restarted(&pauseTopic{fails: true}, oldCopy{time.Now().Add(-24 * time.Hour)})
		expect.That(t, sweepAnOrder(t, s) != nil, "a sweep does not wait for the pauses")
		time.Sleep(10 * time.Minute)
		err := sweepAnOrder(t, s)
		expect.That(t, err == nil && *ignores, "after the wait: %v, ignored %v", err, *ignores)
	})
}

// oldCopy was kept at a time when there was no pause.
type oldCopy struct{ at time.Time }

func (oldCopy) KeepPause(context.Context, string, time.Time) error { return nil }
func (k oldCopy) KeptPause(context.Context, string) (time.Time, bool, error) {
	return k.at, true, nil
}
