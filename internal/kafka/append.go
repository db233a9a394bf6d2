package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// produceWithTail is the last version of a produce request that ends with the batch; see query.tail.
const produceWithTail = 8

// Idempotent returns a function that appends idempotently. If an answer is missing, it sends the same bytes again under the same producer
// id and sequence, and the broker drops the duplicate. Each attempt takes 5 s at most for each answer: that of the append, and those for a
// new connection, the leader and a new producer id, if it needs them. After 5 s without an answer the function gives up. The function
// belongs to one goroutine. See wire.AppendFunc for its errors.
//
// onDuplicates, if not nil, is called with the number of records when records may have been written twice, because the broker has
// forgotten the producer id under which they were first sent.
func (c *Cluster) Idempotent(onDuplicates func(records int)) wire.AppendFunc {
	return (&idempotentProducer{cluster: c, id: -1, onDuplicates: onDuplicates}).append
}

// idempotentProducer has one request in flight at a time. It is not safe for concurrent use.
type idempotentProducer struct {
	cluster      *Cluster
	onDuplicates func(records int)
	id           int64 // -1: a new id is needed
	epoch        int16
	next         map[topicPartition]int32 // the next sequence of each partition under this id
}

type topicPartition struct {
	topic     string
	partition int
}

func (p *idempotentProducer) append(ctx context.Context, topic string, number int, records []wire.RawRecord) (time.Time, error) {
	tp := topicPartition{topic, number}
	pauses := retry.NewBackOff()
	var batch []byte         // made once for each producer id, because a retry must send the same bytes
	var unanswered time.Time // when the first attempt began that may have been written; zero: none
	for forgotten := false; ; {
		began := time.Now()
		at, err := p.try(ctx, tp, records, &batch)
		switch {
		case err == nil:
			return at, nil
		case errors.Is(err, wire.ErrRefused):
			if !unanswered.IsZero() { // an earlier attempt may have been written nevertheless
				p.retire()
			}
			return time.Time{}, err
		case unknownProducer(err) && !forgotten:
			p.retire()
			forgotten, batch = true, nil
			if !unanswered.IsZero() && p.onDuplicates != nil {
				p.onDuplicates(len(records))
			}
			continue
		case unanswered.IsZero() && notWritten(err):
			return time.Time{}, err
		case unanswered.IsZero():
			unanswered = began
		}
		if time.Since(unanswered) >= requestTimeout || !retry.Sleep(ctx, pauses.NextBackOff()) { //mutant:append-without-limit
			p.retire() // the broker may have the records, and would take other ones under their sequence for them
			return time.Time{}, errors.Join(wire.ErrUnanswered, err, ctx.Err())
		}
	}
}

// notWritten reports whether an error proves that a broker has written nothing. A partition that has no leader any more, and a broker that
// gives no answer, may have written.
func notWritten(err error) bool {
	code, answered := errors.AsType[kafka.Error](err)
	access, _ := errors.AsType[*AccessError](err)
	return errors.Is(err, errNotSent) || answered && (access != nil || unknownProducer(err) || code == kafka.InvalidTimestamp ||
		code == kafka.NotEnoughReplicas || code == kafka.UnknownTopicOrPartition || code == kafka.LeaderNotAvailable)
}

// try sends the batch once. It makes the batch first if there is none. A relay appends by hundreds of
// producer ids, so all share the memory of batches: a buffer for each of them would be hundreds of
// megabytes after a burst.
func (p *idempotentProducer) try(ctx context.Context, tp topicPartition, records []wire.RawRecord, batch *[]byte) (time.Time, error) {
	first := *batch == nil
	if first {
		if err := p.init(ctx); err != nil {
			return time.Time{}, notSent{err}
		}
		if used, ok := p.cluster.batches.Get().(*[]byte); ok {
			*batch = *used
		}
		*batch = recordbatch.Encode(*batch, records, time.Now(), recordbatch.Sequence{ProducerID: p.id, Epoch: p.epoch, Base: p.next[tp]})
	}
	at, err := p.cluster.produce(ctx, tp.topic, tp.partition, len(records), *batch, first)
	if errors.Is(err, kafka.DuplicateSequenceNumber) {
		err = nil // an earlier attempt was written, and its answer was lost
	}
	if err == nil {
		if first { // an attempt without an answer may still be reading the batch
			p.cluster.batches.Put(batch)
		}
		p.next[tp] = (p.next[tp] + int32(len(records))) & (1<<31 - 1) // wraps as the broker's sequence does: 2^31 - 1 is followed by 0
	}
	return at, err
}

// init requests a producer id if there is none.
func (p *idempotentProducer) init(ctx context.Context) error {
	if p.id >= 0 {
		return nil
	}
	res, err := p.cluster.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = p.cluster.transport.judge(about{request: protocol.InitProducerId}, res.Error)
	}
	if err == nil && res.Producer.ProducerID < 0 {
		err = errors.New("the broker returned none yet")
	}
	if err != nil {
		return fmt.Errorf("request a producer id: %w", err)
	}
	p.id, p.epoch, p.next = int64(res.Producer.ProducerID), int16(res.Producer.ProducerEpoch), map[topicPartition]int32{}
	return nil
}

// retire drops the producer id and all its sequences.
func (p *idempotentProducer) retire() { p.id = -1 }

// unknownProducer reports whether the broker no longer knows the producer id, or its
// sequences.
func unknownProducer(err error) bool {
	return errors.Is(err, kafka.OutOfOrderSequenceNumber) || errors.Is(err, kafka.InvalidProducerEpoch) || errors.Is(err, kafka.UnknownProducerId)
}

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
	return c.produce(ctx, topic, partition, len(records), recordbatch.Encode(nil, records, time.Now(), recordbatch.NoProducer), true)
}

// ackFunc gets the address of a broker, the time of an append by that broker's clock, and how long the request took.
type ackFunc = func(broker string, at time.Time, took time.Duration)

// OnAck makes the cluster call f after each append that was sent only once, if the broker's answer has the time of the append. Call OnAck before
// anything is appended. f must not block, and several goroutines may call it at the same time.
func (c *Cluster) OnAck(f func(broker string, at time.Time, took time.Duration)) { c.onAck.Store(&f) }

// produce sends a batch of n records once. recordbatch.Encode has made the batch. first says that the batch was not sent before. If it was,
// it is not known which of the requests the broker's answer is about.
func (c *Cluster) produce(ctx context.Context, topic string, partition, n int, batch []byte, first bool) (time.Time, error) {
	leader, err := c.transport.leader(ctx, topic, partition)
	if err != nil {
		err = notSent{err}
	}
	var answer kmsg.ProduceResponseTopicPartition
	began := time.Now()
	if err == nil {
		answer, err = c.produceTo(ctx, leader, topic, partition, batch)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("append %d records to %s/%d: %w", n, topic, partition, refusal(err))
	}
	if answer.LogAppendTime <= 0 { // -1: the broker sent none
		return time.Time{}, nil
	}
	at := time.UnixMilli(answer.LogAppendTime)
	if onAck := c.onAck.Load(); onAck != nil && first {
		(*onAck)(leader.address, at, time.Since(began))
	}
	return at, nil
}

// produceTo sends a batch to the leader of its partition, and returns the answer.
func (c *Cluster) produceTo(ctx context.Context, leader route, topic string, partition int, batch []byte) (
	answer kmsg.ProduceResponseTopicPartition, err error) {
	req := &kmsg.ProduceRequest{Acks: -1, TimeoutMillis: int32(requestTimeout.Milliseconds() / 2), Topics: []kmsg.ProduceRequestTopic{
		{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: int32(partition)}}}}}
	res, err := req.RequestWith(ctx, query{transport: c.transport, route: leader, version: produceWithTail, tail: batch})
	switch {
	case err != nil:
		return answer, err
	case len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1:
		return answer, kafka.Unknown
	}
	answer = res.Topics[0].Partitions[0]
	err = kafka.Error(answer.ErrorCode)
	if answer.ErrorMessage != nil {
		err = fmt.Errorf("%w: %s", err, *answer.ErrorMessage)
	}
	return answer, c.transport.judge(about{request: protocol.Produce, topic: topic}, err)
}
