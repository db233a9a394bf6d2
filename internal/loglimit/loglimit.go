// Package loglimit bounds how many lines one cause of trouble logs.
//
// Wrap the logger of a part once, where the part is made:
//
//	o.Logger = loglimit.New(o.Logger)
//
// Lines of the same stage, level and message are one kind, whatever their attributes
// are: one kind comes from one place in the code, so the number of kinds is small. Of
// each kind the first Burst lines are logged as they are. Further ones are counted, and
// each Period one line stands for them: the last of them with its attributes, how many
// it stands for (left_out), and, if they had the attribute cause, how many of each
// (causes). While that goes on nothing else of the kind is logged; after a Period without
// a line that was left out it begins anew.
//
// Some answers of Kafka only say that something is on its way, such as a group's coordinator
// on a fresh cluster or a new leader. Lines with such an error (attribute err) are a kind of
// their own, of which none is logged as it is. After the first Period one line at level
// INFO stands for all of them; if they go on, each further Period has one warning.
//
// So one kind logs Burst lines at once at most, and one line in each Period from then
// on. Only warnings and errors are bounded; other lines tell of changes of state, of
// which each matters.
package loglimit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// Burst is how many lines of one kind are logged as they are: as many as a person
	// reads to see what they have in common.
	Burst = 20
	// Period is how often one line stands for those that were left out.
	Period = 5 * time.Second
	// maxKinds bounds the kinds that are told apart, and maxCauses the causes of one.
	// Further ones are one kind, or one cause, together.
	maxKinds  = 1000
	maxCauses = 20
)

// Attributes of the line that stands for others.
const (
	LeftOut = "left_out"
	Causes  = "causes"
)

// other is the cause of those beyond maxCauses.
const other = "other"

// New returns a logger that bounds its lines and writes them to l. One that is bounded
// already is returned as it is, so that all parts of a process share one bound.
func New(l *slog.Logger) *slog.Logger {
	if _, is := l.Handler().(*handler); is {
		return l
	}
	return slog.New(&handler{inner: l.Handler(), kinds: &kinds{by: map[kind]*window{}}})
}

// handler is a slog.Handler.
type handler struct {
	inner slog.Handler
	stage string // of the attributes so far
	kinds *kinds
}

// kind is what lines have in common.
type kind struct {
	stage, message string
	level          slog.Level
	passing        bool // the error says that it will pass
}

// kinds are those of which a line was logged lately. Safe for concurrent use.
type kinds struct {
	mu sync.Mutex
	by map[kind]*window
}

// window is what came of a kind in the present Period.
type window struct {
	passed  int // lines that were logged as they are
	leftOut int
	causes  map[string]int
	last    slog.Record // of those that were left out
	to      slog.Handler
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &handler{h.inner.WithAttrs(attrs), h.stage, h.kinds}
	for _, a := range attrs {
		if a.Key == "stage" {
			with.stage = a.Value.String()
		}
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.inner.WithGroup(name), h.stage, h.kinds}
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || h.kinds.passes(kind{h.stage, r.Message, r.Level, passing(r)}, r, h.inner) {
		return h.inner.Handle(ctx, r)
	}
	return nil
}

// passes reports whether a line is to be logged as it is. Else it is counted.
func (k *kinds) passes(of kind, r slog.Record, to slog.Handler) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.by[of]
	if w == nil && len(k.by) >= maxKinds {
		of = kind{level: r.Level}
		w = k.by[of]
	}
	if w == nil {
		w = &window{}
		k.by[of] = w
		time.AfterFunc(Period, func() { k.end(of, w) })
	}
	if w.passed < Burst && !of.passing {
		w.passed++
		return true
	}
	w.leftOut++
	w.last, w.to = r, to
	w.count(r)
	return false
}

// end logs what was left out in a Period, and begins the next one if something was.
func (k *kinds) end(of kind, w *window) {
	k.mu.Lock()
	if w.leftOut == 0 {
		delete(k.by, of)
		k.mu.Unlock()
		return
	}
	r, to := w.last.Clone(), w.to
	if of.passing && w.passed == 0 { // it may pass yet
		r.Level = slog.LevelInfo
	}
	r.AddAttrs(slog.Int(LeftOut, w.leftOut))
	if len(w.causes) > 0 {
		r.AddAttrs(slog.Any(Causes, w.causes))
	}
	*w = window{passed: Burst}
	time.AfterFunc(Period, func() { k.end(of, w) })
	k.mu.Unlock()
	if !to.Enabled(context.Background(), r.Level) {
		return
	}
	_ = to.Handle(context.Background(), r) // there is nobody to tell that the log takes nothing
}

// count counts the line by its cause, if it has one.
func (w *window) count(r slog.Record) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "cause" {
			return true
		}
		cause := a.Value.String()
		if w.causes == nil {
			w.causes = map[string]int{}
		}
		if _, known := w.causes[cause]; !known && len(w.causes) >= maxCauses {
			cause = other
		}
		w.causes[cause]++
		return false
	})
}

// passingCodes are the titles of Kafka's answers that say that something is on its way.
// They are titles because only internal/kafka knows the client library.
var passingCodes = map[string]bool{
	"Group Load In Progress": true, "Group Coordinator Not Available": true, "Not Coordinator For Group": true,
	"Rebalance In Progress": true, "Leader Not Available": true, "Not Leader For Partition": true,
}

// passing says whether the line's error is such an answer.
func passing(r slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if a.Key != "err" || !ok {
			return true
		}
		var answer interface{ Title() string }
		is = errors.As(err, &answer) && passingCodes[answer.Title()]
		return false
	})
	return is
}
