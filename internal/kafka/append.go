package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/wire"
)

// Append writes the messages to one partition in one request and waits until all in-sync
// replicas have them. It returns the broker's append time, or zero if the topic does not
// use LogAppendTime. Append ignores Topic, Partition, Offset and Appended of the messages
// and stamps the records with the present time.
//
// After an error the messages may have been written or not. The exception is
// wire.ErrRefused: the broker has rejected these messages as one batch, and a retry
// is useless.
func (c *Cluster) Append(ctx context.Context, topic string, partition int, messages []wire.Message) (time.Time, error) {
	records := make([]wire.RawRecord, len(messages))
	for i := range messages {
		records[i] = messages[i].Raw()
	}
	return c.produce(ctx, topic, partition, len(records), recordbatch.Encode(nil, records, time.Now(), recordbatch.NoProducer))
}

// produce sends a batch of n records once. recordbatch.Encode has made the batch. While
// BrokerClock.Keep runs, produce gives the append time of the answer to the BrokerClock, which
// compares it with its estimate.
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
	at := res.LogAppendTime
	if at.UnixMilli() <= 0 { // -1: the broker sent none
		at = time.Time{}
	}
	if clock != nil && !at.IsZero() {
		clock.compare(topicPartition{topic, partition}, sent, at)
	}
	return at, nil
}
