package deadletters

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// watchInterval is the interval between reads of the topic, about the interval at which
// metrics are collected.
const watchInterval = 15 * time.Second

// State is the state of the topic as its follower knows it.
type State struct {
	At time.Time `json:"at,omitzero"` // when the topic was read to its end
	// Pending is the number of pending dead letters by cause, as Index.Pending returns it. All causes
	// beyond 64 count as Other, and those that are longer than 249 bytes or not valid UTF-8.
	Pending map[string]int `json:"pending"`
	Oldest  time.Time      `json:"oldest,omitzero"` // when the oldest pending dead letter was appended; zero if there is none
}

// WatchOptions for a Watch. Log, Topic and Report must be set.
type WatchOptions struct {
	Log    FollowedLog
	Topic  string
	Report func(State)  // called after each read of the whole topic
	Logger *slog.Logger // default: discard
}

// Watch follows the topic from its beginning, without a group, until ctx ends. Each time it
// has read to the end, it calls Report. If the topic is missing or may not be read, Watch logs
// that once, keeps trying, and does not call Report meanwhile.
func Watch(ctx context.Context, o WatchOptions) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &watch{o: o, index: NewIndex(), oldestAt: map[Position]time.Time{}}
	w.from = newFollower(o.Log, o.Topic, w)
	for failing := false; ; {
		err := w.report(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = false
		case !failing:
			failing = true
			o.Logger.Warn("counting dead letters failed, orderclose_dead_letters_pending is out of date", "topic", o.Topic, "err", err)
		}
		if !retry.Sleep(ctx, watchInterval) {
			return
		}
	}
}

// watch belongs to the goroutine of Watch.
type watch struct {
	o        WatchOptions
	from     *follower
	index    *Index
	oldestAt map[Position]time.Time // the append time of the oldest pending dead letter of each partition
}

// report reads the new records and calls Report.
func (w *watch) report(ctx context.Context) error {
	if err := w.from.poll(ctx); err != nil {
		return err
	}
	oldest, err := w.oldest(ctx)
	if err != nil {
		return err
	}
	w.o.Report(State{At: time.Now(), Pending: w.index.Pending(), Oldest: oldest})
	return nil
}

// add implements subscriber.
func (w *watch) add(partition int, batch []wire.Message) {
	for _, m := range batch {
		w.index.add(partition, m)
	}
}

// forget implements subscriber.
func (w *watch) forget(partition int, below int64) {
	if gone := w.index.Forget(partition, below); gone > 0 {
		w.o.Logger.Error("retention deleted pending dead letters", "topic", w.o.Topic, "partition", partition, "letters", gone)
	}
}

// restart implements subscriber.
func (w *watch) restart(partition int) {
	w.index.Forget(partition, math.MaxInt64)
	clear(w.oldestAt)
}

// oldest returns when the oldest pending dead letter was appended. It reads the record
// again, because the index has no times.
func (w *watch) oldest(ctx context.Context) (oldest time.Time, err error) {
	known := w.oldestAt
	w.oldestAt = map[Position]time.Time{}
	for p := range w.from.spans {
		at, ok := w.index.Oldest(p)
		if !ok {
			continue
		}
		t, read := known[at]
		if !read {
			s := kafka.Span{Partition: p, First: at.Offset, End: at.Offset + 1}
			_, err := kafka.Scan(ctx, little{w.o.Log}, w.o.Topic, s, func(f wire.Fetched) error {
				if len(f.Records) > 0 {
					t = f.Records[0].AppendedAt()
				}
				return nil
			})
			if err != nil {
				return time.Time{}, err
			}
		}
		if t.IsZero() { // retention deleted it a moment ago
			continue
		}
		w.oldestAt[at] = t
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest, nil
}
