package deadletters

import (
	"context"
	"log/slog"
	"time"

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
	w := &watch{o: o, oldestAt: map[Position]time.Time{}}
	w.from = newFollower(o.Log, o.Topic, w)
	w.from.run(ctx, o.Logger, watchInterval, "counting dead letters failed, orderclose_dead_letters_pending is out of date", w.report)
}

// watch belongs to the goroutine of Watch.
type watch struct {
	o        WatchOptions
	from     *follower
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
	w.o.Report(State{At: time.Now(), Pending: w.from.index.Pending(), Oldest: oldest})
	return nil
}

// add implements subscriber.
func (w *watch) add(partition int, batch []wire.Message) {
	for _, m := range batch {
		w.from.index.add(partition, m)
	}
}

// forget implements subscriber.
func (w *watch) forget(partition int, _ int64, pending int) {
	if pending > 0 {
		w.o.Logger.Error("retention deleted pending dead letters", "topic", w.o.Topic, "partition", partition, "letters", pending)
	}
}

// restart implements subscriber.
func (w *watch) restart(int) { clear(w.oldestAt) }

// oldest returns when the oldest pending dead letter was appended. It reads the record
// again, because the index has no times.
func (w *watch) oldest(ctx context.Context) (oldest time.Time, err error) {
	known := w.oldestAt
	w.oldestAt = map[Position]time.Time{}
	for p := range w.from.spans {
		at, ok := w.from.index.Oldest(p)
		if !ok {
			continue
		}
		t, read := known[at]
		if !read {
			switch m, err := readOne(ctx, w.o.Log, w.o.Topic, at); {
			case err != nil:
				return time.Time{}, err
			case m == nil: // retention deleted it a moment ago
				continue
			default:
				t = m.Appended
			}
		}
		w.oldestAt[at] = t
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest, nil
}
