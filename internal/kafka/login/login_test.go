package login

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A token is renewed after half of its life. If that fails, it is used until it ends, and no longer.
func TestKept_IsRenewedAfterHalfOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		var log bytes.Buffer
		down, asked := error(nil), 0
		k := keep("token", slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) (string, time.Time, error) {
			asked++
			return strings.Repeat("x", asked), time.Now().Add(life), down
		})
		for _, step := range []struct {
			wait  time.Duration
			down  error
			asked int
			err   bool
		}{
			{0, nil, 1, false},
			{life/2 - time.Second, nil, 1, false},
			{time.Second, nil, 2, false},                           // half of its life is over
			{life / 2, errors.New("the provider rests"), 3, false}, // the last one is used
			{fetchPause / 2, errors.New("the provider rests"), 3, false},
			{fetchPause / 2, errors.New("the provider rests"), 4, false},
			{life / 2, errors.New("the provider rests"), 5, true}, // it has ended
			{fetchPause / 2, nil, 5, true},
			{fetchPause / 2, nil, 6, false},
		} {
			time.Sleep(step.wait)
			down = step.down
			_, err := k.get(t.Context())
			if synctest.Wait(); asked != step.asked || (err != nil) != step.err {
				t.Fatalf("%+v: asked %d times, %v", step, asked, err)
			}
		}
		if text := log.String(); !strings.Contains(text, "renewing the login to Kafka failed") || strings.Contains(text, "xx") {
			t.Errorf("logged %q", text)
		}
	})
}

// A provider that does not answer delays a login by fetchTimeout, and only one caller at a time waits for it.
func TestKept_DoesNotWaitWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep("token", slog.New(slog.DiscardHandler), func(ctx context.Context) (string, time.Time, error) {
			<-ctx.Done()
			return "", time.Time{}, ctx.Err()
		})
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := k.get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
				t.Errorf("the second caller got %v after %v", err, time.Since(began))
			}
		}()
		if _, err := k.get(t.Context()); err == nil || time.Since(began) != fetchTimeout {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// A provider that hangs delays no login while the last token is valid.
func TestKept_NobodyWaitsForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		k := keep("token", slog.New(slog.DiscardHandler), func(ctx context.Context) (string, time.Time, error) {
			if asked++; asked > 1 {
				<-ctx.Done()
			}
			return "x", time.Now().Add(time.Hour), ctx.Err()
		})
		_, _ = k.get(t.Context())
		time.Sleep(50 * time.Minute)
		for range 8 {
			began := time.Now()
			if value, err := k.get(t.Context()); value != "x" || err != nil || time.Since(began) != 0 {
				t.Errorf("%q, %v after %v", value, err, time.Since(began))
			}
		}
		time.Sleep(fetchTimeout)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
	})
}
