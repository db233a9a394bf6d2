package kafka

import (
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"orderclose"
)

// refusal says whether err is the broker's definite no to these very bytes, so
// that sending them again is useless. It returns orderclose.ErrRefused beside err, and
// err itself for anything that another try may mend.
func refusal(err error) error {
	switch {
	case errors.Is(err, kafka.MessageSizeTooLarge), errors.Is(err, kafka.RecordListTooLarge),
		errors.Is(err, kafka.InvalidRecord), errors.Is(err, kafka.InvalidTimestamp):
		return fmt.Errorf("%w: %w", orderclose.ErrRefused, err)
	}
	return err
}

// evicted says whether a commit was refused because the partitions may belong
// to somebody else by now.
func evicted(err error) bool {
	return errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.RebalanceInProgress)
}
