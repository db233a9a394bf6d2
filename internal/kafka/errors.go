package kafka

import (
	"context"
	"errors"
	"fmt"

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
