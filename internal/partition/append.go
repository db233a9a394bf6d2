package partition

import (
	"context"
	"errors"

	"github.com/orderclose/orderclose/internal/wire"
)

// AppendPart appends records to one partition, in their order. Each call of request gets as
// many records as fit into one request. If Kafka refuses a request for good
// (wire.ErrRefused), AppendPart halves it down to the records at fault and passes them to
// onRefused. The others are appended. After any other error it makes no further request, and
// returns the error and the records that are left: those that are neither acked nor refused.
func AppendPart(records []wire.RawRecord, request func([]wire.RawRecord) error, onRefused func(wire.RawRecord, error)) (left []wire.RawRecord, err error) {
	for len(records) > 0 {
		n := wire.Fitting(records)
		n, err = appendOrHalve(records[:n:n], request, onRefused)
		if records = records[n:]; err != nil {
			return records, err
		}
	}
	return nil, nil
}

// appendOrHalve makes one request. If Kafka refuses the records for good, appendOrHalve appends
// each half on its own. n is the number of records, from the first on, that are acked or
// refused. If err is nil, n is the number of all records.
func appendOrHalve(records []wire.RawRecord, request func([]wire.RawRecord) error, onRefused func(wire.RawRecord, error)) (n int, err error) {
	err = request(records)
	switch {
	case err == nil:
		return len(records), nil
	case !errors.Is(err, wire.ErrRefused):
		return 0, err
	case len(records) == 1:
		onRefused(records[0], err)
		return 1, nil
	}
	half := len(records) / 2
	if n, err = appendOrHalve(records[:half:half], request, onRefused); err != nil {
		return n, err
	}
	n, err = appendOrHalve(records[half:], request, onRefused)
	return half + n, err
}

// GroupFunc groups records by their partition of a topic.
type GroupFunc func(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)

// AppendDeadLetters tries once to append dead letters to their topic. group groups them by the
// partition of the topic. After an error of one partition AppendDeadLetters goes on with the
// others. It returns the dead letters that were not acked, with the last error. wire.ErrRefused
// is such an error, and halving would not help: dead letters are cut to fit, so the limits of
// the topic are wrong.
func AppendDeadLetters(ctx context.Context, topic string, letters []wire.RawRecord,
	group GroupFunc, request wire.AppendFunc,
) (left []wire.RawRecord, err error) {
	grouped, err := group(ctx, topic, letters)
	if err != nil {
		return letters, err
	}
	for p, part := range grouped {
		for len(part) > 0 {
			n := wire.Fitting(part)
			if _, failed := request(ctx, topic, p, part[:n:n]); failed != nil {
				left, err = append(left, part...), failed
				break
			}
			part = part[n:]
		}
	}
	return left, err
}
