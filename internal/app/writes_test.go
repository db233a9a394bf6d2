package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A database that takes no writes is told of, for how long, until it takes them again.
// A try that hangs is not joined by another one.
func TestWrites_TellForHowLongTheyFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		trying := 0
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		w := writes{every: 15 * time.Second, logger: slog.New(slog.DiscardHandler)}
		w.try = func(context.Context) error {
			if trying++; trying > 1 {
				t.Error("two tries at once")
			}
			defer func() { trying-- }()
			if now := time.Since(began); now < 40*time.Second || now > 90*time.Second {
				return nil
			}
			time.Sleep(5 * time.Second) // as long as the store lets it take
			return errors.New("read-only")
		}
		w.tell = func(failing time.Duration, err error) {
			if told = append(told, fmt.Sprintf("%v %v", failing, err)); len(told) == 6 {
				cancel()
			}
		}
		w.run(ctx)
		want := []string{"0s <nil>", "0s <nil>", "0s read-only", "20s read-only", "40s read-only", "0s <nil>"}
		if !slices.Equal(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	})
}
