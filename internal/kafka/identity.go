package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/wire"
)

var noTopicID [16]byte

// TopicID returns the id of a topic. A topic that is deleted and recreated gets another id. TopicID
// fails with kafka.UnknownTopicOrPartition if the topic does not exist.
func (c *Cluster) TopicID(ctx context.Context, name string) ([16]byte, error) {
	found, err := c.fresh(ctx, name)
	if err == nil && found.code != 0 {
		err = found.code
	}
	if err != nil {
		return noTopicID, fmt.Errorf("id of topic %s: %w", name, err)
	}
	return found.id, nil
}

// fresh asks about a topic now, whatever is cached.
func (c *Cluster) fresh(ctx context.Context, name string) (topic, error) {
	began := time.Now()
	found, err := c.transport.describe(ctx, func(t topic) bool { return !t.at.Before(began) }, name)
	return found[0], err
}

// outOfRange returns the Fetched for an offset that the log does not have. Reading continues at the start of a log that lost its start or
// was recreated, and at the end of a log that lost its end: the compensator closes the orders of the records that are skipped. A log of
// which nothing was read is read from its start, since nobody knows what happened to it.
func (c *Cluster) outOfRange(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	id, err := c.TopicID(ctx, at.Topic)
	if err != nil {
		return wire.Fetched{}, err
	}
	first, end, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return wire.Fetched{}, err
	}
	f, same := wire.Fetched{Log: wire.LogID{Topic: id, Epoch: -1}}, id == at.Log.Topic
	switch {
	case same && at.Offset >= first && at.Offset <= end && at.Log.Epoch >= 0: // the broker does not know the epoch: ask again without it
		f.Next = at.Offset
	case same && at.Offset >= first && at.Offset <= end:
		return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w, but the log goes from %d to %d",
			at.Topic, at.Partition, at.Offset, kafka.OffsetOutOfRange, first, end)
	case same && at.Offset < first:
		f.Next, f.Lost = first, &wire.Range{First: at.Offset, Last: first - 1, Err: fmt.Errorf("the log begins at %d", first)}
	case same && at.Log.Epoch >= 0: //mutant:truncated-from-start
		f.Next, f.Replaced = end, true
		f.Lost = &wire.Range{First: end, Last: at.Offset - 1, Err: fmt.Errorf("the log was truncated, and ends at offset %d now", end)}
	default:
		f.Next, f.Replaced = first, true
		f.Lost = &wire.Range{First: first, Last: at.Offset - 1, Err: fmt.Errorf("the log was replaced, and goes from %d to %d now", first, end)}
	}
	return f, nil
}

// recreated returns the Fetched for a position whose topic was deleted, if a topic of the
// same name exists now. All of the new log is unread.
func (c *Cluster) recreated(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	id, err := c.TopicID(ctx, at.Topic)
	if err != nil {
		return wire.Fetched{}, err
	}
	if id == at.Log.Topic { // brokers learn of a new topic one after the other
		return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: the broker does not know the topic yet", at.Topic, at.Partition, at.Offset)
	}
	first, _, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return wire.Fetched{}, err
	}
	lost := wire.Range{First: first, Last: at.Offset - 1, Err: errors.New("the topic was deleted and recreated")}
	return wire.Fetched{Next: first, Lost: &lost, Replaced: true, Log: wire.LogID{Topic: id, Epoch: -1}}, nil
}

// truncated returns the Fetched for a position whose log lost its end, as in an unclean
// leader election. The log has the epoch only up to end. From end on the offsets mean other
// records. After two such elections in a row end may be too high by what the first one lost.
func truncated(at wire.Position, epoch int32, end int64) wire.Fetched {
	lost := wire.Range{First: end, Last: max(at.Offset-1, end), Err: fmt.Errorf("the log was truncated: records read before are valid up to offset %d only", end)}
	return wire.Fetched{Next: end, Lost: &lost, Replaced: true, Log: wire.LogID{Topic: at.Log.Topic, Epoch: epoch}}
}
