package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// delaysInterval is the interval between two looks at the delays in effect, which are in memory;
	// delaysRetry is the pause after the control topic could not be read or written.
	delaysInterval, delaysRetry = 2 * time.Second, 10 * time.Second
	// delaysChecked is how often the control topic is read while the delays do not change. A record that
	// is older than delaysKept is written again, because the topic keeps its records for 7 days.
	delaysChecked, delaysKept = 24 * time.Hour, 3 * 24 * time.Hour
)

// delayRecorder keeps the delays of this process in the control topic. It belongs to one goroutine.
type delayRecorder struct {
	control *ops.Control
	history compensator.History
	file    string       // topics.yaml; "": none
	last    *wire.Delays // what record has compared last; nil: nothing yet
	at      time.Time    // when it did
}

// watchDelays records the delays beside a compensator, at its start and when they change, until ctx ends.
func (a *App) watchDelays(ctx context.Context, roles []Role) {
	if a.conns.Kafka == nil || !slices.Contains(roles, Compensator) {
		return
	}
	control, topic := a.conns.Kafka, a.o.Config.Topics.Control
	r := delayRecorder{ops.NewControl(control, topic), compensator.History{Appender: control, Topic: topic, Holder: processName(roles, a.o.Listen)}, a.o.TopicsFile, nil, time.Time{}}
	for wait := delaysInterval; ctx.Err() == nil; retry.Sleep(ctx, wait) {
		wait = delaysInterval
		if err := r.record(ctx, wire.NewDelays(a.config().Delays, r.history.Holder), time.Now()); err != nil {
			wait = delaysRetry
			a.o.Logger.Debug("delays not recorded in the control topic, will retry", "err", err)
		}
	}
}

// record appends the delays unless the newest record has them. If it has others, and this process had the
// same at the last call, another process has another file: then it appends nothing.
func (r *delayRecorder) record(ctx context.Context, now wire.Delays, at time.Time) error {
	unchanged := r.last != nil && r.last.Same(now)
	if unchanged && at.Sub(r.at) < delaysChecked {
		return nil
	}
	state, err := r.control.Read(ctx, at)
	if err != nil {
		return err
	}
	known := len(state.Delays) > 0 && (unchanged || state.Delays[0].Same(now))
	if !known || state.Delays[0].Same(now) && at.Sub(state.Delays[0].At) >= delaysKept {
		if data, err := os.ReadFile(r.file); err == nil {
			now.File = fmt.Sprintf("%x", sha256.Sum256(data))[:10]
		}
		m, err := now.Encode()
		if err == nil {
			_, err = r.history.Appender.Append(ctx, r.history.Topic, 0, []wire.Message{m})
		}
		if err != nil {
			return err
		}
	}
	r.last, r.at = &now, at
	return nil
}
