package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/wire"
)

// refusal adds wire.ErrRefused to err if the broker has rejected these very bytes
// for good, so that a retry is useless. It returns err itself if a retry may succeed.
func refusal(err error) error {
	switch {
	case errors.Is(err, kafka.MessageSizeTooLarge), errors.Is(err, kafka.RecordListTooLarge),
		errors.Is(err, kafka.InvalidRecord), errors.Is(err, kafka.InvalidTimestamp):
		return fmt.Errorf("%w: %w", wire.ErrRefused, err)
	}
	return err
}

// Passes reports whether an error may end by itself, as while brokers start: a broker does not answer,
// the cluster has no leader or controller, or has fewer brokers than a topic wants replicas.
func Passes(err error) bool {
	var access *AccessError
	var code kafka.Error
	switch {
	case err == nil, errors.As(err, &access), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &code):
		return code.Temporary() || code == kafka.BrokerNotAvailable || code == kafka.InvalidReplicationFactor || code == kafka.Unknown
	}
	return true
}

// evicted reports whether a commit was rejected because the partitions may belong to
// another member now.
func evicted(err error) bool {
	return errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.RebalanceInProgress) ||
		errors.Is(err, kafka.FencedInstanceID)
}

// Limits returns a sentence for each thing that the brokers cannot do, and says what follows. The
// program works with such brokers, but less well. The topic must exist. If partition 0 of the topic is
// empty, Limits does not say whether the brokers find offsets by time. clock.ErrNoAppendTime is not among the
// limits: Keep of a Clock reports it.
func (c *Cluster) Limits(ctx context.Context, topic string) (limits []string, err error) {
	id, err := c.idOf(ctx, topic)
	switch {
	case err != nil:
		return nil, err
	case id == noTopicID:
		limits = append(limits, "the brokers compare no topic ids, as those before Kafka 3.1: if a topic is deleted and recreated, "+
			"its first records may wait for the next sweep")
	}
	p := &idempotentProducer{cluster: c, id: -1}
	switch err := p.init(ctx); {
	case err != nil:
		return nil, err
	case p.plain:
		limits = append(limits, "the brokers accept no idempotent appends: a record is written twice if the answer to its append is lost. "+
			"Orders are closed once nevertheless")
	}
	first, end, err := c.Bounds(ctx, topic, 0)
	if err != nil {
		return nil, err
	}
	byTime, err := c.OffsetAt(ctx, topic, 0, time.UnixMilli(1))
	code := kafka.Error(0)
	switch {
	case errors.Is(err, errNotOffered), errors.As(err, &code) && !code.Temporary(), err == nil && first < end && byTime >= end:
		limits = append(limits, "the brokers find no offsets by time: commands with --since, and the causes of missed orders, find no records or too many")
	case err != nil:
		return nil, err
	}
	return limits, nil
}
