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

	"orderclose"
)

// The first versions of requests that know a topic's id. The client library ends before
// them.
const (
	metadataWithID = 10 // Kafka 2.8
	fetchByID      = 13 // Kafka 3.1
)

// What a broker answers to a fetch by an id that none of its topics has. The client
// library has no names for them.
const (
	unknownTopicID      = 100
	inconsistentTopicID = 103
)

var noTopicID [16]byte

// ErrNoTopicIDs says that the brokers are too old for topic ids.
var ErrNoTopicIDs = errors.New("the brokers are older than Kafka 3.1 and compare no topic ids")

// TopicID asks for the id of a topic: one that is deleted and recreated has another. It
// fails with ErrNoTopicIDs if the brokers have none, and with
// kafka.UnknownTopicOrPartition if there is no such topic.
func (c *Cluster) TopicID(ctx context.Context, topic string) ([16]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.transport.RoundTrip(ctx, c.client.Addr, &idRequest{
		Request: metadataAPI.Request{TopicNames: []string{topic}}, brokers: &c.brokers,
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

// idRequest asks any broker for the id of one topic. One that could not compare the id
// with a fetch is not asked: the answer is zero.
type idRequest struct {
	metadataAPI.Request
	brokers *brokers
}

// idAnswer is the answer to an idRequest.
type idAnswer struct {
	topic string
	code  int16
	id    [16]byte
}

// ApiKey makes it a protocol message.
func (*idAnswer) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required is asked with the versions that the library agreed on.
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
	w.bytes(noTopicID[:]) // by its name
	w.string(topic)
	w.tags()
	w.int8(0) // create none
	w.int8(0) // tell of no operations on the cluster
	w.int8(0) // nor on topics
	w.tags()
	body, err := ask(rw, w)
	if err != nil {
		return nil, err
	}
	return parseIDAnswer(body, topic)
}

// parseIDAnswer reads a metadata response of one topic, version 10.
func parseIDAnswer(body []byte, topic string) (*idAnswer, error) {
	d := cursor{b: body}
	d.tags()  // of the header
	d.skip(4) // throttle time
	for n := d.length(); n > 0 && !d.bad; n-- {
		d.skip(4)          // broker
		d.skip(d.length()) // host
		d.skip(4)          // port
		d.skip(d.length()) // rack
		d.tags()
	}
	d.skip(d.length()) // cluster
	d.skip(4)          // controller
	topics := d.length()
	a := &idAnswer{topic: topic, code: int16(d.uint16())}
	d.skip(d.length()) // name
	copy(a.id[:], d.take(16))
	if d.bad || topics != 1 {
		return nil, fmt.Errorf("id of topic %s: an answer of %d topics, or one that ends early", topic, topics)
	}
	return a, nil
}

// noIDsFor is how long it is believed that the brokers have no topic ids.
const noIDsFor = time.Minute

// idOf is TopicID, or a zero id if the brokers have none, for which they are asked once
// a minute.
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

// outOfRange finds where reading goes on when the log does not have the offset: at the
// start of a log that lost its start or was recreated, and before the end of one that
// lost its end.
func (c *Cluster) outOfRange(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error) {
	known := at.Log.Topic != noTopicID
	if known { // a broker that compares no ids may have answered
		id, err := c.idOf(ctx, at.Topic)
		switch {
		case err != nil:
			return orderclose.Fetched{}, err
		case id == noTopicID: // the brokers run an older version than when the id was learned
			known = false
		case id != at.Log.Topic:
			return c.recreated(ctx, at)
		}
	}
	first, end, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return orderclose.Fetched{}, err
	}
	switch {
	case at.Offset < first:
		lost := orderclose.Range{First: at.Offset, Last: first - 1, Err: fmt.Errorf("the log begins at %d", first)}
		return orderclose.Fetched{Next: first, Lost: &lost, Log: orderclose.LogID{Topic: at.Log.Topic, Epoch: -1}}, nil
	case at.Offset > end && !known: // the worse of the two is assumed
		lost := orderclose.Range{First: first, Last: at.Offset - 1, Err: fmt.Errorf("the log ends at %d", end)}
		return orderclose.Fetched{Next: first, Lost: &lost, Replaced: true, Log: orderclose.LogID{Epoch: -1}}, nil
	case at.Offset > end, c.unknownEpoch(ctx, at):
		return c.truncatedSomewhere(ctx, at, first, end)
	}
	return orderclose.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w, and yet the log goes from %d to %d", at.Topic, at.Partition, at.Offset, kafka.OffsetOutOfRange, first, end)
}

// recreated returns what a read of a position brings whose log is gone with its topic, if
// there is a topic of its name: all of the new log is unread.
func (c *Cluster) recreated(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error) {
	id, err := c.TopicID(ctx, at.Topic)
	if err != nil {
		return orderclose.Fetched{}, err
	}
	if id == at.Log.Topic { // brokers hear of a topic one after the other
		return orderclose.Fetched{}, fmt.Errorf("fetch %s/%d at %d: the broker does not know the topic yet", at.Topic, at.Partition, at.Offset)
	}
	first, _, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return orderclose.Fetched{}, err
	}
	lost := orderclose.Range{First: first, Last: at.Offset - 1, Err: errors.New("the topic was deleted and recreated")}
	return orderclose.Fetched{Next: first, Lost: &lost, Replaced: true, Log: orderclose.LogID{Topic: id, Epoch: -1}}, nil
}

// truncated returns what a read of a position brings whose log lost its end, as after an
// unclean leader election: from there on offsets mean other records. After two such
// elections in a row the end may be too late by what the first one lost.
func truncated(at orderclose.Position, d divergence) orderclose.Fetched {
	lost := orderclose.Range{First: d.end, Last: max(at.Offset-1, d.end), Err: fmt.Errorf("the log lost its end: what was read before ends at %d", d.end)}
	return orderclose.Fetched{Next: d.end, Lost: &lost, Replaced: true, Log: orderclose.LogID{Topic: at.Log.Topic, Epoch: d.epoch}}
}

// truncatedSomewhere is truncated where nobody can say how much was lost: no epoch stands
// beside the commit, or the broker lost that too. What was appended within LookBack is
// read again.
func (c *Cluster) truncatedSomewhere(ctx context.Context, at orderclose.Position, first, end int64) (orderclose.Fetched, error) {
	next := first
	if at.LookBack > 0 {
		offset, err := c.OffsetAt(ctx, at.Topic, at.Partition, time.Now().Add(-at.LookBack))
		if err != nil {
			return orderclose.Fetched{}, err
		}
		next = min(max(first, offset), at.Offset, end)
	}
	f := truncated(at, divergence{-1, next})
	f.Lost.First = min(at.Offset, end)
	f.Lost.Last = max(f.Lost.First, f.Lost.Last)
	f.Lost.Err = fmt.Errorf("the log lost its end, and has an end at %d now", end)
	return f, nil
}

// unknownEpoch reports whether the broker refuses the position for nothing but its epoch,
// and does so twice: a leader that moves may refuse anything once.
func (c *Cluster) unknownEpoch(ctx context.Context, at orderclose.Position) bool {
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
