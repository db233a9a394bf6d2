package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// output collects the log.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// take returns the lines since the last call of take, and forgets them.
func (o *output) take() (lines []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.b.String()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	o.b.Reset()
	return lines
}

func logger(o *output) *slog.Logger {
	return LimitLogs(slog.New(slog.NewTextHandler(o, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
}

func TestLimitLogs_FloodIsSummarizedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		l := logger(&o).With("stage", "closer")
		first := time.Now()
		sent := 0
		for time.Since(first) < time.Minute {
			for range 100 {
				sent++
				l.With("partition", sent%12).Error("dead letter", "offset", sent, "cause", []string{"bad_due", "no_key"}[sent%2])
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * LogPeriod)
		lines := o.take()
		counted := 0
		for i, line := range lines {
			n := 1
			if i >= LogBurst {
				_, rest, _ := strings.Cut(line, LeftOut+"=")
				_, err := fmt.Sscanf(rest, "%d", &n)
				must.That(t, err == nil, "line %d is no summary: %q: %v", i, line, err)
			}
			counted += n
		}
		expect.That(t, counted == sent && len(lines) == LogBurst+12,
			"%d lines account for %d of %d; want %d lines and one each %v", len(lines), counted, sent, LogBurst, LogPeriod)
		want := regexp.MustCompile(`^level=ERROR msg="dead letter" stage=closer partition=\d+ offset=\d+ cause=\w+ left_out=\d+$`)
		expect.That(t, want.MatchString(lines[LogBurst+1]), "a summary is\n%s, want\n%s", lines[LogBurst+1], want)
		l.Error("dead letter", "cause", "bad_due")
		if lines := o.take(); len(lines) != 1 || strings.Contains(lines[0], LeftOut) {
			t.Errorf("after a pause: %q", lines)
		}
	})
}

func TestLimitLogs_FloodHidesNoOtherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		l := logger(&o)
		closer, relay := l.With("stage", "closer"), l.With("stage", "relay")
		for range 1000 {
			closer.Warn("fetch failed")
		}
		o.take()
		closer.Warn("commit failed")
		closer.Error("fetch failed")
		relay.Warn("fetch failed")
		for range 2 * LogBurst {
			closer.Info("serving")
		}
		expect.Equal(t, len(o.take()), 3+2*LogBurst, "lines of other kinds")
	})
}

// TestLimitLogs_NumberOfKindsIsBounded uses messages that contain ids, so that each message is another kind.
func TestLimitLogs_NumberOfKindsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		l := logger(&o)
		for i := range 100 * maxKinds {
			l.Warn(fmt.Sprint("order ", i), "cause", fmt.Sprint(i))
		}
		expect.Equal(t, len(o.take()), maxKinds+LogBurst, "lines")
		time.Sleep(LogPeriod)
		synctest.Wait()
		lines := o.take()
		expect.That(t, len(lines) == 1 && strings.Contains(lines[0], LeftOut), "%q", lines)
	})
}

func TestLimitLogs_PartsShareOneLimit(t *testing.T) {
	var o output
	l := logger(&o)
	again := LimitLogs(l.With("stage", "closer"))
	expect.That(t, again.Handler().(*logHandler).kinds == l.Handler().(*logHandler).kinds, "New has wrapped a logger that is limited already")
}

// A program without a logger of its own still sees warnings and errors, and nothing else.
func TestLimitLogs_WithoutALogger(t *testing.T) {
	var o output
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&o, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	l := LimitLogs(nil).With("stage", "closer").WithGroup("order")
	l.Debug("a detail")
	l.Info("serving")
	l.Warn("waiting", "id", 17)
	l.Error("dead letter")
	lines := o.take()
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "level=WARN msg=waiting stage=closer order.id=17") ||
		!strings.HasSuffix(lines[1], `level=ERROR msg="dead letter" stage=closer`) {
		t.Errorf("%q", lines)
	}
}

func TestWithCauses_NamesEachCauseOnce(t *testing.T) {
	down, late := errors.New("the store is down"), errors.New("no answer in time")
	inner := fmt.Errorf("call: %w: %w", down, context.DeadlineExceeded)
	err := WithCauses(fmt.Errorf("%w: %w", late, inner), down, late)
	if want := "no answer in time: call: the store is down: context deadline exceeded"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	err = WithCauses(context.DeadlineExceeded, down, late)
	if want := "the store is down: no answer in time: context deadline exceeded"; err.Error() != want || !errors.Is(err, down) || !errors.Is(err, late) {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestCatch_TurnsAPanicIntoAnError(t *testing.T) {
	wanted := errors.New("refused")
	expect.Equal(t, Catch(func() error { return wanted }), wanted, "the error of the call")
	err := Catch(func() error { panic("index out of range") })
	var p *PanicError
	expect.That(t, errors.As(err, &p) && err.Error() == "panic: index out of range" && strings.Contains(p.Stack, "logs_test.go"),
		"err = %v, want a PanicError with the stack", err)
}
