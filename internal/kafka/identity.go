package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/wire"
)

// The first versions of these requests that use topic ids. The client library knows only
// older versions.
const (
	metadataWithID = 10 // Kafka 2.8
	fetchByID      = 13 // Kafka 3.1
)

var noTopicID [16]byte

// ErrNoTopicIDs means that the brokers are too old to compare topic ids in a fetch.
var ErrNoTopicIDs = errors.New("the brokers are older than Kafka 3.1 and compare no topic ids")

// TopicID returns the id of a topic. A topic that is deleted and recreated gets another id.
// TopicID fails with ErrNoTopicIDs if a broker is too old, and with
// kafka.UnknownTopicOrPartition if the topic does not exist.
func (c *Cluster) TopicID(ctx context.Context, topic string) ([16]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.transport.RoundTrip(ctx, c.client.Addr, &idRequest{
		Request: metadataAPI.Request{TopicNames: []string{topic}}, brokers: &c.versions,
	})
	if err != nil {
		return noTopicID, fmt.Errorf("id of topic %s: %w", topic, err)
	}
	a := res.(*idAnswer)
	switch {
	case a.code != 0:
		return noTopicID, fmt.Errorf("id of topic %s: %w", topic, kafka.Error(a.code))
	case a.id == noTopicID:
		return noTopicID, fmt.Errorf("id of topic %s: %w", topic, ErrNoTopicIDs)
	}
	return a.id, nil
}

// idRequest asks any broker for the id of one topic. If the broker is too old to compare the
// id in a fetch, the request is not sent, and the id in the answer is zero.
type idRequest struct {
	metadataAPI.Request
	brokers *versionCache
}

// idAnswer is the answer to an idRequest.
type idAnswer struct {
	topic string
	code  int16
	id    [16]byte
}

// ApiKey implements protocol.Message.
func (*idAnswer) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required implements protocol.RawExchanger.
func (*idRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange sends the request and reads the answer.
func (r *idRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	topic := r.TopicNames[0]
	newest, err := r.brokers.at(rw)
	if err != nil {
		return nil, err
	}
	if newest.fetch < fetchByID || newest.metadata < metadataWithID {
		return &idAnswer{topic: topic}, nil
	}
	w := newRequest(protocol.Metadata, metadataWithID)
	w.tags()
	w.count(1)
	w.bytes(noTopicID[:]) // none: by name
	w.string(topic)
	w.tags()
	w.int8(0) // allow auto topic creation
	w.int8(0) // include cluster authorized operations
	w.int8(0) // include topic authorized operations
	w.tags()
	body, err := roundTrip(rw, w)
	if err != nil {
		return nil, err
	}
	return parseIDAnswer(body, topic)
}

// parseIDAnswer reads a metadata response of version 10 about one topic.
func parseIDAnswer(body []byte, topic string) (*idAnswer, error) {
	d := recordbatch.Cursor{Rest: body}
	d.SkipTags() // of the header
	d.Skip(4)    // throttle time
	for n := d.Length(); n > 0 && !d.Bad; n-- {
		d.Skip(4)          // broker
		d.Skip(d.Length()) // host
		d.Skip(4)          // port
		d.Skip(d.Length()) // rack
		d.SkipTags()
	}
	d.Skip(d.Length()) // cluster id
	d.Skip(4)          // controller
	topics := d.Length()
	a := &idAnswer{topic: topic, code: int16(d.Uint16())}
	d.Skip(d.Length()) // name
	copy(a.id[:], d.Take(16))
	if d.Bad || topics != 1 {
		return nil, fmt.Errorf("id of topic %s: the answer has %d topics or ends early", topic, topics)
	}
	return a, nil
}

// noIDsFor is how long ErrNoTopicIDs is cached.
const noIDsFor = time.Minute

// idOf is TopicID, but returns a zero id if the brokers have no topic ids. It caches for a
// minute that they have none.
func (c *Cluster) idOf(ctx context.Context, topic string) ([16]byte, error) {
	c.mu.Lock()
	none := !c.noIDs.IsZero() && time.Since(c.noIDs) < noIDsFor
	c.mu.Unlock()
	if none {
		return noTopicID, nil
	}
	id, err := c.TopicID(ctx, topic)
	if errors.Is(err, ErrNoTopicIDs) {
		c.mu.Lock()
		c.noIDs = time.Now()
		c.mu.Unlock()
		return noTopicID, nil
	}
	return id, err
}

// outOfRange returns the Fetched for an offset that the log does not have. Reading continues
// at the start of a log that lost its start or was recreated, and before the end of a log
// that lost its end.
func (c *Cluster) outOfRange(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	known := at.Log.Topic != noTopicID
	if known { // a broker that compares no topic ids may have answered the fetch
		id, err := c.idOf(ctx, at.Topic)
		switch {
		case err != nil:
			return wire.Fetched{}, err
		case id == noTopicID: // the brokers were downgraded since the id was learned
			known = false
		case id != at.Log.Topic:
			return c.recreated(ctx, at)
		}
	}
	first, end, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return wire.Fetched{}, err
	}
	switch {
	case at.Offset < first:
		lost := wire.Range{First: at.Offset, Last: first - 1, Err: fmt.Errorf("the log begins at %d", first)}
		return wire.Fetched{Next: first, Lost: &lost, Log: wire.LogID{Topic: at.Log.Topic, Epoch: -1}}, nil
	case at.Offset > end && !known: // recreated or truncated: assume recreated, which repeats more
		lost := wire.Range{First: first, Last: at.Offset - 1, Err: fmt.Errorf("the log ends at %d", end)}
		return wire.Fetched{Next: first, Lost: &lost, Replaced: true, Log: wire.LogID{Epoch: -1}}, nil
	case at.Offset > end, c.unknownEpoch(ctx, at):
		return c.truncatedSomewhere(ctx, at, first, end)
	}
	return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w, but the log goes from %d to %d", at.Topic, at.Partition, at.Offset, kafka.OffsetOutOfRange, first, end)
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
// leader election. From d.end on the offsets mean other records. After two such elections in
// a row d.end may be too high by what the first one lost.
func truncated(at wire.Position, d divergence) wire.Fetched {
	lost := wire.Range{First: d.end, Last: max(at.Offset-1, d.end), Err: fmt.Errorf("the log was truncated: records read before are valid up to offset %d only", d.end)}
	return wire.Fetched{Next: d.end, Lost: &lost, Replaced: true, Log: wire.LogID{Topic: at.Log.Topic, Epoch: d.epoch}}
}

// truncatedSomewhere is truncated for a loss of unknown size: the commit has no epoch, or the
// broker has lost its epochs too. Reading goes back to the records that were appended within
// at.LookBack, or to the start of the log if LookBack is zero.
func (c *Cluster) truncatedSomewhere(ctx context.Context, at wire.Position, first, end int64) (wire.Fetched, error) {
	next := first
	if at.LookBack > 0 {
		offset, err := c.OffsetAt(ctx, at.Topic, at.Partition, time.Now().Add(-at.LookBack))
		if err != nil {
			return wire.Fetched{}, err
		}
		next = min(max(first, offset), at.Offset, end)
	}
	f := truncated(at, divergence{-1, next})
	f.Lost.First = min(at.Offset, end)
	f.Lost.Last = max(f.Lost.First, f.Lost.Last)
	f.Lost.Err = fmt.Errorf("the log was truncated, and ends at offset %d now", end)
	return f, nil
}

// unknownEpoch reports whether the broker rejects the position only because of its epoch.
// It requires two rejections, because a leader that moves may reject anything once.
func (c *Cluster) unknownEpoch(ctx context.Context, at wire.Position) bool {
	if at.Log.Topic == noTopicID || at.Log.Epoch < 0 {
		return false
	}
	without := at
	without.Log.Epoch = -1
	if _, err := c.fetchRaw(ctx, without, fetchLimits{0, 1}); err != nil {
		return false
	}
	_, err := c.fetchRaw(ctx, at, fetchLimits{0, 1})
	return errors.Is(err, kafka.OffsetOutOfRange)
}
