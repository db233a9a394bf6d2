package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchAPI "github.com/segmentio/kafka-go/protocol/fetch"

	"orderclose"
)

const (
	// fetchMaxWait is how long the broker may wait for a first byte. It is the
	// turn of an idle loop, not a delay: a record is answered as it arrives.
	fetchMaxWait = 2 * time.Second
	// fetchMaxBytes bounds one answer. A first batch that is larger comes whole.
	fetchMaxBytes = 1 << 20
	// maxAnswerBytes bounds what is believed of an answer's length.
	maxAnswerBytes = 256 << 20
)

// Fetch reads the partition from the offset on. With nothing there it waits up
// to two seconds and returns an empty Fetched. An offset that the log does not
// have (any more) is reported in Lost, with Next at the start of the log.
func (c *Cluster) Fetch(ctx context.Context, topic string, partition int, offset int64) (orderclose.Fetched, error) {
	raw, err := c.fetchRaw(ctx, topic, partition, offset, fetchLimits{fetchMaxWait, fetchMaxBytes})
	if errors.Is(err, kafka.OffsetOutOfRange) {
		return c.outOfRange(ctx, topic, partition, offset)
	}
	if err != nil {
		return orderclose.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w", topic, partition, offset, err)
	}
	m := raw.memory
	f := splitBatches(raw.records, offset, raw.end, m.records[:0])
	if n := len(raw.records); n > 0 && f.Next == offset {
		return f, fmt.Errorf("fetch %s/%d at %d: the broker sent %d bytes and no whole batch", topic, partition, offset, n)
	}
	m.records = f.Records
	f.Free = func() { c.memories.put(m) }
	return f, nil
}

// fetchLimits bound what a fetch waits for and brings.
type fetchLimits struct {
	wait  time.Duration
	bytes int32
}

// fetchRaw returns the record batches of a partition from the offset on as the
// broker sent them.
func (c *Cluster) fetchRaw(ctx context.Context, topic string, partition int, offset int64, limits fetchLimits) (*rawAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.transport.RoundTrip(ctx, c.client.Addr, &rawFetch{memories: &c.memories, Request: fetchAPI.Request{
		ReplicaID:    -1,
		MaxWaitTime:  int32(limits.wait.Milliseconds()),
		MinBytes:     1,
		MaxBytes:     limits.bytes,
		SessionID:    -1,
		SessionEpoch: -1,
		Topics: []fetchAPI.RequestTopic{{
			Topic: topic,
			Partitions: []fetchAPI.RequestPartition{{
				Partition:          int32(partition),
				CurrentLeaderEpoch: -1,
				FetchOffset:        offset,
				LogStartOffset:     -1,
				PartitionMaxBytes:  limits.bytes,
			}},
		}},
	}})
	if err != nil {
		return nil, err
	}
	raw := answer.(*rawAnswer)
	return raw, raw.err()
}

// outOfRange finds where reading can go on after the log has lost the offset:
// at its start, wherever that is. A log that ends before the offset was made
// anew, and everything in it is unread.
func (c *Cluster) outOfRange(ctx context.Context, topic string, partition int, offset int64) (orderclose.Fetched, error) {
	first, last, err := c.Bounds(ctx, topic, partition)
	if err != nil {
		return orderclose.Fetched{}, err
	}
	if first <= offset && offset <= last { // it came back, or never was away: a leader moved
		return orderclose.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w, and yet the log goes from %d to %d", topic, partition, offset, kafka.OffsetOutOfRange, first, last)
	}
	if offset > last {
		lost := orderclose.Range{First: first, Last: offset - 1, Err: fmt.Errorf("the log ends at %d", last)}
		return orderclose.Fetched{Next: first, Lost: &lost, Anew: true}, nil
	}
	lost := orderclose.Range{First: offset, Last: first - 1, Err: fmt.Errorf("the log begins at %d", first)}
	return orderclose.Fetched{Next: first, Lost: &lost}, nil
}

// Bounds returns the first offset of a partition and the one its next record
// will get.
func (c *Cluster) Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error) {
	res, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)},
	}})
	if err != nil {
		return 0, 0, fmt.Errorf("bounds of %s/%d: %w", topic, partition, err)
	}
	for _, p := range res.Topics[topic] {
		if p.Partition != partition {
			continue
		}
		if p.Error != nil || p.FirstOffset < 0 || p.LastOffset < 0 {
			return 0, 0, fmt.Errorf("bounds of %s/%d: %w", topic, partition, errors.Join(p.Error, errors.New("not known yet")))
		}
		return p.FirstOffset, p.LastOffset, nil
	}
	return 0, 0, fmt.Errorf("bounds of %s/%d: %w", topic, partition, kafka.UnknownTopicOrPartition)
}

// rawFetch is a fetch request of one partition whose answer is kept as bytes:
// the library's decoder drops the batch header, and with it the append time.
type rawFetch struct {
	fetchAPI.Request
	version  int16
	memories *memories
}

// Required is asked with the versions that the connection agreed on.
func (r *rawFetch) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Fetch]
	return true
}

// RawExchange sends the request and reads the whole answer.
func (r *rawFetch) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	const correlationID = 1 // one request at a time on a connection
	if err := protocol.WriteRequest(rw, r.version, correlationID, "orderclose", &r.Request); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if id := binary.BigEndian.Uint32(head[4:]); id != correlationID || size < 0 || size > maxAnswerBytes {
		return nil, fmt.Errorf("fetch: unexpected answer of %d bytes with correlation id %d", size, id)
	}
	m := r.memories.get(int(size))
	if _, err := io.ReadFull(rw, m.body); err != nil {
		return nil, err
	}
	a, err := parseAnswer(m.body, r.version)
	if err != nil {
		return nil, err
	}
	a.memory = m
	return a, nil
}

// rawAnswer is the answer to a rawFetch.
type rawAnswer struct {
	code    int16
	records []byte // record batches, the last one perhaps cut off
	end     int64  // of what may be read: the high watermark
	memory  *memory
}

// ApiKey makes it a protocol message.
func (*rawAnswer) ApiKey() protocol.ApiKey { return protocol.Fetch }

func (a *rawAnswer) err() error {
	if a.code != 0 {
		return kafka.Error(a.code)
	}
	return nil
}

// parseAnswer reads a fetch response of one partition, versions 4 to 11.
func parseAnswer(body []byte, version int16) (*rawAnswer, error) {
	d := cursor{b: body}
	d.skip(4) // throttle time
	a := &rawAnswer{}
	if version >= 7 {
		a.code = int16(d.uint16())
		d.skip(4) // session id
	}
	if topics := int32(d.uint32()); topics == 0 && a.code != 0 {
		return a, nil
	}
	d.skip(int(d.uint16())) // topic
	d.skip(4 + 4)           // how many partitions, which one
	if code := int16(d.uint16()); code != 0 {
		a.code = code
	}
	a.end = int64(d.uint64())
	d.skip(8) // last stable offset
	if version >= 5 {
		d.skip(8) // log start offset
	}
	if aborted := int32(d.uint32()); aborted > 0 {
		d.skip(int(aborted) * 16)
	}
	if version >= 11 {
		d.skip(4) // preferred read replica
	}
	if n := int32(d.uint32()); n > 0 {
		a.records = d.take(int(n))
	}
	if d.bad {
		return nil, fmt.Errorf("fetch: the answer (version %d) ends early: %x", version, bytes.Clone(body[:min(len(body), 64)]))
	}
	return a, nil
}
