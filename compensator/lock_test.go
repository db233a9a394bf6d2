package compensator_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// inBubble runs test in a synctest bubble, with a Redis server and a client for it.
func inBubble(t *testing.T, test func(t *testing.T, server *miniredis.Miniredis, client redis.UniversalClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() }})
		defer client.Close()
		test(t, server, client)
	})
}

func newLock(t *testing.T, client redis.UniversalClient) *compensator.RedisLock {
	t.Helper()
	l := must.Get(compensator.NewLock(compensator.LockOptions{Client: client}))(t)
	return l
}

func TestLock_IsHeldWhileTheWorkRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, server *miniredis.Miniredis, client redis.UniversalClient) {
		first, second := newLock(t, client), newLock(t, client)
		err := first.Hold(t.Context(), func(ctx context.Context) error {
			for range 10 { // five minutes: five times the expiry
				time.Sleep(30 * time.Second)
				expect.Is(t, second.Hold(ctx, func(context.Context) error { t.Error("two have it"); return nil }), compensator.ErrHeld, "the second lock")
			}
			return ctx.Err()
		})
		expect.NoError(t, err)
		if err := second.Hold(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("later the second lock returned %v", err)
		}
	})
}

func TestLock_TheWorkEndsWhenAnotherProcessHasTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, server *miniredis.Miniredis, client redis.UniversalClient) {
		begin := time.Now()
		err := newLock(t, client).Hold(t.Context(), func(ctx context.Context) error {
			server.FlushAll()
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
				t.Error("the work goes on without the lock")
			}
			return ctx.Err()
		})
		expect.That(t, errors.Is(err, compensator.ErrLockLost), "got %v", err)
		expect.AtMost(t, time.Since(begin), compensator.DefaultLockExpiry/3, "the time until it noticed")
	})
}

func TestLock_TheWorkEndsBeforeAnUnextendedLockExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, server *miniredis.Miniredis, client redis.UniversalClient) {
		begin := time.Now()
		err := newLock(t, client).Hold(t.Context(), func(ctx context.Context) error {
			server.SetError("LOADING")
			<-ctx.Done()
			return ctx.Err()
		})
		expect.That(t, errors.Is(err, compensator.ErrLockLost), "got %v", err)
		expect.Between(t, time.Since(begin), compensator.DefaultLockExpiry/3, compensator.DefaultLockExpiry, "the time until it ended")
	})
}

func TestLock_ReportsAnUnavailableServer(t *testing.T) {
	inBubble(t, func(t *testing.T, server *miniredis.Miniredis, client redis.UniversalClient) {
		server.SetError("LOADING")
		err := newLock(t, client).Hold(t.Context(), func(context.Context) error { t.Error("worked"); return nil })
		expect.That(t, errors.Is(err, compensator.ErrLockUnavailable), "got %v", err)
	})
}

// refusesWrites makes a client's writes fail, as those of a Redis that only answers.
type refusesWrites struct{ with string }

func (r refusesWrites) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "set" {
			cmd.SetErr(errors.New(r.with))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (refusesWrites) DialHook(next redis.DialHook) redis.DialHook { return next }

func (refusesWrites) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestLock_ARedisThatOnlyAnswersIsNotAvailable(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *miniredis.Miniredis, client redis.UniversalClient) {
		l := newLock(t, client)
		must.Do(t, l.Available(t.Context()))
		for answer, why := range map[string]string{
			"OOM command not allowed when used memory > 'maxmemory'.": "its memory is full: OOM command",
			"MISCONF Redis is configured to save RDB snapshots":       "it cannot save to its disk: MISCONF",
			"READONLY You can't write against a read only replica.":   "it is a read-only replica: READONLY",
			"NOPERM No permissions to access a key":                   "unavailable: NOPERM",
		} {
			client := redis.NewClient(client.(*redis.Client).Options())
			client.AddHook(refusesWrites{with: answer})
			err := newLock(t, client).Available(t.Context())
			expect.That(t, errors.Is(err, compensator.ErrLockUnavailable) && strings.Contains(err.Error(), why), "%v, want %q", err, why)
			client.Close()
		}
	})
}
