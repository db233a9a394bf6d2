package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"orderclose"
)

// Append writes the messages to one partition in one request, waits until all
// in-sync replicas have them, and returns the broker's append time: zero if the
// topic is not set to LogAppendTime. Topic, Partition, Offset and Appended of
// the messages are ignored; their record timestamps are the present.
//
// An error leaves open whether they were written, except one that is
// orderclose.ErrRefused: that is a definite no to these
// messages together, and sending them again is useless.
func (c *Cluster) Append(ctx context.Context, topic string, partition int, messages []orderclose.Message) (time.Time, error) {
	records := make([]orderclose.RawRecord, len(messages))
	for i := range messages {
		records[i] = messages[i].Raw()
	}
	return c.produce(ctx, topic, partition, len(records), splice(nil, records, time.Now(), noProducer))
}

// produce sends a batch of n records that splice has made, once. The append time of the
// answer is compared with the estimate of the brokers' clock, if one is kept.
func (c *Cluster) produce(ctx context.Context, topic string, partition, n int, batch []byte) (time.Time, error) {
	clock, sent := c.clock.Load(), reading{}
	if clock != nil {
		sent = clock.local()
	}
	res, err := c.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic:        topic,
		Partition:    partition,
		RequiredAcks: kafka.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
	})
	if err == nil {
		err = res.Error // a partition's error comes with a nil err
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("append %d records to %s/%d: %w", n, topic, partition, refusal(err))
	}
	at := appendTime(res.LogAppendTime)
	if clock != nil && !at.IsZero() {
		clock.compare(appendedTo{topic, partition}, sent, at)
	}
	return at, nil
}

// appendTime is zero where the broker gave none: the library makes -1 ms of it.
func appendTime(t time.Time) time.Time {
	if t.UnixMilli() <= 0 {
		return time.Time{}
	}
	return t
}
