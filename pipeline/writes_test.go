package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// TestWriteProbe_ReportsHowLongTheWritesFail: a failing probe reports for how long the writes have failed. No second probe starts while one hangs.
func TestWriteProbe_ReportsHowLongTheWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		trying := 0
		ctx, cancel := context.WithCancel(t.Context())
		var reports []string
		try := func(context.Context) error {
			if trying++; trying > 1 {
				t.Error("two probes at once")
			}
			defer func() { trying-- }()
			if now := time.Since(began); now < 40*time.Second || now > 90*time.Second {
				return nil
			}
			time.Sleep(5 * time.Second) // the store's own limit
			return errors.New("read-only")
		}
		report := func(failing time.Duration, err error) {
			if reports = append(reports, fmt.Sprintf("%v %v", failing, err)); len(reports) == 6 {
				cancel()
			}
		}
		probeWrites(ctx, slog.New(slog.DiscardHandler), try, report)
		want := []string{"0s <nil>", "0s <nil>", "0s read-only", "20s read-only", "40s read-only", "0s <nil>"}
		expect.That(t, slices.Equal(reports, want), "got %q, want %q", reports, want)
	})
}
