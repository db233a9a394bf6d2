package deadletters

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// watchInterval is the interval between reads of the topic, about the interval at which
// metrics are collected.
const watchInterval = 15 * time.Second

// State is the state of the topic as a Watch knows it.
type State struct {
	At      time.Time      // when the topic was read to its end
	Pending map[string]int // by cause
	Oldest  time.Time      // when the oldest pending dead letter was appended; zero if there is none
}

// WatchOptions for a Watch. Log, Topic and Report must be set.
type WatchOptions struct {
	Log    Log
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
	w := &watch{o: o, topic: Topic{Log: o.Log, Name: o.Topic}, index: NewIndex(), next: map[int]wire.Position{}, oldestAt: map[Position]time.Time{}}
	for failing := false; ; {
		err := w.poll(ctx)
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
	topic    Topic
	index    *Index
	next     map[int]wire.Position  // by partition: the position of the next read
	oldestAt map[Position]time.Time // the append time of the oldest pending dead letter of each partition
	readable bool                   // a read was allowed
}

// poll reads the new records and calls Report.
func (w *watch) poll(ctx context.Context) error {
	n, err := w.o.Log.Partitions(ctx, w.o.Topic)
	if err != nil {
		return err
	}
	for p := range n {
		if err := w.catchUp(ctx, p); err != nil {
			return err
		}
	}
	oldest, err := w.oldest(ctx, n)
	if err != nil {
		return err
	}
	w.o.Report(State{At: time.Now(), Pending: w.index.Pending(), Oldest: oldest})
	return nil
}

// catchUp reads a partition to its present end.
func (w *watch) catchUp(ctx context.Context, p int) error {
	first, end, err := w.o.Log.Bounds(ctx, w.o.Topic, p)
	if err != nil {
		return err
	}
	if end < w.next[p].Offset {
		w.reset(p)
	}
	if gone := w.index.Forget(p, first); gone > 0 {
		w.o.Logger.Error("retention deleted pending dead letters", "topic", w.o.Topic, "partition", p, "letters", gone)
	}
	if !w.readable { // report missing access now, and not with the first dead letter
		if _, err := w.o.Log.Read(ctx, wire.Position{Topic: w.o.Topic, Partition: p, Offset: end}); err != nil {
			return err
		}
		w.readable = true
	}
	span := kafka.Span{Partition: p, First: max(w.next[p].Offset, first), End: end, Log: w.next[p].Log}
	_, err = kafka.Scan(ctx, w.o.Log, w.o.Topic, span, func(f wire.Fetched) error {
		for _, m := range messages(f.Records) {
			w.index.add(p, m)
		}
		w.next[p] = wire.Position{Offset: min(f.Next, end), Log: f.Log}
		return nil
	})
	if errors.Is(err, kafka.ErrRecreated) {
		w.reset(p)
		return w.catchUp(ctx, p)
	}
	return err
}

// reset forgets a partition, so that it is read from its start: the topic was deleted and
// recreated.
func (w *watch) reset(p int) {
	w.index.Forget(p, w.next[p].Offset)
	w.next[p] = wire.Position{}
	clear(w.oldestAt)
}

// oldest returns when the oldest pending dead letter was appended. It reads the record
// again, because the index has no times.
func (w *watch) oldest(ctx context.Context, partitions int) (oldest time.Time, err error) {
	known := w.oldestAt
	w.oldestAt = map[Position]time.Time{}
	for p := range partitions {
		at, ok := w.index.Oldest(p)
		if !ok {
			continue
		}
		t, read := known[at]
		if !read {
			err := w.topic.read(ctx, kafka.Span{Partition: p, First: at.Offset, End: at.Offset + 1}, func(batch []wire.RawRecord) error {
				t = batch[0].AppendedAt()
				return errStop
			})
			if err != nil && !errors.Is(err, errStop) {
				return time.Time{}, err
			}
		}
		w.oldestAt[at] = t
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest, nil
}
