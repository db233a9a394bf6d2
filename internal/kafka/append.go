package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose"
)

// Append writes the messages to one partition in one request, waits until all
// in-sync replicas have them, and returns the broker's append time: zero if the
// topic is not set to LogAppendTime. Topic, Partition, Offset and Appended of
// the messages are ignored; their record timestamps are the present.
//
// An error leaves open whether they were written, except one that is
// orderclose.ErrTooLarge or orderclose.ErrRefused: that is a definite no to these
// messages together, and sending them again is useless.
func (c *Cluster) Append(ctx context.Context, topic string, partition int, messages []orderclose.Message) (time.Time, error) {
	now := time.Now()
	// The library drains the records it is given: they are built anew each time,
	// or a second try would send them empty.
	records := make([]kafka.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record{Time: now, Key: kafka.NewBytes(m.Key), Value: kafka.NewBytes(m.Value)}
		for _, h := range m.Headers {
			records[i].Headers = append(records[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	res, err := c.client.Produce(ctx, &kafka.ProduceRequest{
		Topic:        topic,
		Partition:    partition,
		RequiredAcks: kafka.RequireAll,
		Records:      kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = res.Error // a partition's error comes with a nil err
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("append %d records to %s/%d: %w", len(messages), topic, partition, refusal(err))
	}
	return appendTime(res.LogAppendTime), nil
}

// appendTime is zero where the broker gave none: the library makes -1 ms of it.
func appendTime(t time.Time) time.Time {
	if t.UnixMilli() <= 0 {
		return time.Time{}
	}
	return t
}
