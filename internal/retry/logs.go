package retry

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"
)

const (
	// LogBurst is the number of lines of one kind that are logged unchanged: as many as a
	// person reads to see what they have in common.
	LogBurst = 20
	// LogPeriod is the time between two summary lines of one kind.
	LogPeriod = 5 * time.Second
	// maxKinds bounds the number of kinds. All further kinds share one kind per level.
	maxKinds = 1000
)

// LeftOut is the attribute of a summary line with the number of lines for which it stands.
const LeftOut = "left_out"

// LimitLogs returns a logger that limits its warnings and errors and writes them to l. If l is nil,
// it writes them to slog.Default, and discards all lines below WARN: a program that sets no logger still
// sees why nothing happens. If l is limited already, LimitLogs returns l itself, so that all parts of a
// process share one limit.
//
// Lines of the same stage, level and message are one kind. Other attributes do not matter.
// One kind comes from one place in the code, so the number of kinds is small.
//
// The first LogBurst lines of a kind are logged unchanged. Then the last line of each LogPeriod stands for all of that
// period, with their number in left_out. After a LogPeriod without a line that was left out, the kind starts over.
// Other levels are not limited: their lines report changes of state.
func LimitLogs(l *slog.Logger) *slog.Logger {
	h := &logHandler{lowest: math.MinInt, kinds: &lineKinds{windows: map[lineKind]*window{}}}
	if l == nil {
		l, h.lowest = slog.Default(), slog.LevelWarn
	} else if _, is := l.Handler().(*logHandler); is {
		return l
	}
	h.inner = l.Handler()
	return slog.New(h)
}

// logHandler is a slog.Handler.
type logHandler struct {
	inner  slog.Handler
	lowest slog.Level // lines of lower levels are discarded
	stage  string     // the attribute stage, if WithAttrs has set it
	kinds  *lineKinds
}

// lineKind identifies the lines that are limited together.
type lineKind struct {
	stage, message string
	level          slog.Level
}

// lineKinds holds the window of each kind that had a line in the present or previous LogPeriod.
// It is safe for concurrent use.
type lineKinds struct {
	mu      sync.Mutex
	windows map[lineKind]*window
}

// window counts the lines of a kind in the present LogPeriod.
type window struct {
	logged  int // lines that were logged unchanged; LogBurst once a summary was logged
	leftOut int
	last    slog.Record  // the last line that was left out
	inner   slog.Handler // the logHandler for last
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.lowest && h.inner.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &logHandler{h.inner.WithAttrs(attrs), h.lowest, h.stage, h.kinds}
	for _, a := range attrs {
		if a.Key == "stage" {
			with.stage = a.Value.String()
		}
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.inner.WithGroup(name), h.lowest, h.stage, h.kinds}
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || h.kinds.admit(lineKind{h.stage, r.Message, r.Level}, r, h.inner) {
		return h.inner.Handle(ctx, r)
	}
	return nil
}

// admit reports whether a line is to be logged unchanged. If not, admit counts the line.
func (k *lineKinds) admit(of lineKind, r slog.Record, inner slog.Handler) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.windows[of]
	if w == nil && len(k.windows) >= maxKinds { //mutant:log-kinds-unbounded
		of = lineKind{level: r.Level}
		w = k.windows[of]
	}
	if w == nil {
		w = &window{}
		k.windows[of] = w
		time.AfterFunc(LogPeriod, func() { k.end(of, w) })
	}
	if w.logged < LogBurst {
		w.logged++
		return true
	}
	w.leftOut++
	w.last, w.inner = r, inner
	return false
}

// end ends a LogPeriod. If lines were left out, end logs their summary and begins the next
// LogPeriod. If none was, end forgets the kind.
func (k *lineKinds) end(of lineKind, w *window) {
	k.mu.Lock()
	if w.leftOut == 0 {
		delete(k.windows, of)
		k.mu.Unlock()
		return
	}
	r, inner := w.last.Clone(), w.inner
	r.AddAttrs(slog.Int(LeftOut, w.leftOut))
	*w = window{logged: LogBurst} //mutant:flood-logged-again
	time.AfterFunc(LogPeriod, func() { k.end(of, w) })
	k.mu.Unlock()
	_ = inner.Handle(context.Background(), r) // an error of the log itself has nowhere to go
}
