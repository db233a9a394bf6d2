package deadletters

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// watchEvery is how often the topic is looked at: as often as metrics are
// collected, about.
const watchEvery = 15 * time.Second

// Seen is what a watch knows of the topic.
type Seen struct {
	At      time.Time      // when the topic was read to its end
	Pending map[string]int // by cause
	Oldest  time.Time      // when the oldest pending one was buried; zero if there is none
}

// WatchOptions for a Watch. Log, Topic and Tell must be set.
type WatchOptions struct {
	Log    Log
	Topic  string
	Tell   func(Seen)
	Logger *slog.Logger // default: discard
}

// Watch follows the topic from its beginning, without a group, and tells what is
// pending whenever it has read to the end. It goes on until ctx ends, whatever
// happens: a topic that is missing, or that it may not read, is logged once, and
// nothing is told meanwhile.
func Watch(ctx context.Context, o WatchOptions) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &watch{o: o, topic: Topic{Log: o.Log, Name: o.Topic}, index: NewIndex(), next: map[int]orderclose.Position{}, buried: map[Place]time.Time{}}
	for failing := false; ; {
		err := w.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = false
		case !failing:
			failing = true
			o.Logger.Warn("the dead letters cannot be counted; orderclose_dead_letters_pending stays as it is until they can be", "topic", o.Topic, "err", err)
		}
		if !partition.Sleep(ctx, watchEvery) {
			return
		}
	}
}

// watch belongs to the goroutine of Watch.
type watch struct {
	o      WatchOptions
	topic  Topic
	index  *Index
	next   map[int]orderclose.Position // by partition: where to read on
	buried map[Place]time.Time         // of the oldest pending one of each partition
	reads  bool                        // it was let read
}

// turn reads what came and tells.
func (w *watch) turn(ctx context.Context) error {
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
	w.o.Tell(Seen{At: time.Now(), Pending: w.index.Pending(), Oldest: oldest})
	return nil
}

// catchUp reads a partition to its present end.
func (w *watch) catchUp(ctx context.Context, p int) error {
	first, end, err := w.o.Log.Bounds(ctx, w.o.Topic, p)
	if err != nil {
		return err
	}
	if end < w.next[p].Offset {
		w.begin(p)
	}
	if gone := w.index.Forget(p, first); gone > 0 {
		w.o.Logger.Error("retention has deleted dead letters that nobody had looked after", "topic", w.o.Topic, "partition", p, "letters", gone)
	}
	if !w.reads { // whoever may not is to hear of it now, and not with the first dead letter
		if _, err := w.o.Log.Read(ctx, orderclose.Position{Topic: w.o.Topic, Partition: p, Offset: end}); err != nil {
			return err
		}
		w.reads = true
	}
	span := kafka.Span{Partition: p, First: max(w.next[p].Offset, first), End: end, Log: w.next[p].Log}
	_, err = kafka.Scan(ctx, w.o.Log, w.o.Topic, span, func(f orderclose.Fetched) error {
		for _, m := range messages(f.Records) {
			w.index.feed(p, m)
		}
		w.next[p] = orderclose.Position{Offset: min(f.Next, end), Log: f.Log}
		return nil
	})
	if errors.Is(err, kafka.ErrRecreated) {
		w.begin(p)
		return w.catchUp(ctx, p)
	}
	return err
}

// begin forgets a partition and has it read from its start: the topic was deleted and
// recreated.
func (w *watch) begin(p int) {
	w.index.Forget(p, w.next[p].Offset)
	w.next[p] = orderclose.Position{}
	clear(w.buried)
}

// oldest returns when the oldest pending dead letter was buried. It is read again,
// as the index has no times.
func (w *watch) oldest(ctx context.Context, partitions int) (oldest time.Time, err error) {
	known := w.buried
	w.buried = map[Place]time.Time{}
	for p := range partitions {
		at, ok := w.index.Oldest(p)
		if !ok {
			continue
		}
		t, read := known[at]
		if !read {
			err := w.topic.read(ctx, kafka.Span{Partition: p, First: at.Offset, End: at.Offset + 1}, func(batch []orderclose.RawRecord) error {
				t = batch[0].AppendedAt()
				return errEnough
			})
			if err != nil && !errors.Is(err, errEnough) {
				return time.Time{}, err
			}
		}
		w.buried[at] = t
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest, nil
}
