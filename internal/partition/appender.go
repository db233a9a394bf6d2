package partition

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// SendResult is the result of an attempt to append records to one topic. A record that
// the broker refuses for good is in neither Acked nor Left: it becomes a dead letter.
type SendResult struct {
	Topic string
	Began time.Time
	Acked []Acked
	// Left holds the records that were not acked within the time limit. Some may have
	// been written all the same, which is counted.
	Left []wire.RawRecord
	// Pause is how long the topic rests now, if Left is not empty.
	Pause time.Duration

	refused []refused
}

// Acked is one acked request.
type Acked struct {
	Records  []wire.RawRecord
	At       time.Time // the broker's append time, by its own clock; zero if unknown
	Answered time.Time // when the ack arrived, by the local clock
}

// refused is a record that the broker refuses for good, and its error.
type refused struct {
	record wire.RawRecord
	err    error
}

// appender appends records of a claim to one topic, each to the partition of its key. It
// has a producer id for each partition, so that requests to several partitions may be in
// flight at once: a partition without a leader delays no other.
type appender struct {
	o     *OutOptions
	claim context.Context
	pipes map[int]wire.AppendFunc
	pulse Pulse
	// group groups records by their partition.
	group func(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)
}

// try appends the records until all are acked or refused, ctx ends, or the claim ends. No
// request begins after that. The requests in flight then are awaited, and resent if an
// answer is missing, for LingerTime.
func (a *appender) try(ctx context.Context, topic string, records []wire.RawRecord, sent *SendResult) {
	for len(records) > 0 {
		var spread map[int][]wire.RawRecord
		ok := retry.Do(ctx, a.o.Logger.With("to", topic), "partition lookup", func(ctx context.Context) (err error) {
			a.pulse.Beat()
			spread, err = a.group(ctx, topic, records)
			return err
		})
		if !ok {
			break
		}
		records = a.appendAll(ctx, topic, spread, sent)
	}
	sent.Left = records
}

// appendAll appends the records of each partition. It returns the records that are left
// because ctx has ended or a partition does not exist.
func (a *appender) appendAll(ctx context.Context, topic string, spread map[int][]wire.RawRecord, sent *SendResult) (left []wire.RawRecord) {
	for p := range spread {
		if a.pipes[p] == nil {
			a.pipes[p] = a.o.Log.Idempotent(a.pulse.Beat, a.o.Repeated)
		}
	}
	if len(spread) == 1 {
		for p, records := range spread {
			left = a.appendPart(ctx, topic, p, records, sent)
		}
		return left
	}
	var mu sync.Mutex
	var parts sync.WaitGroup
	for p, records := range spread {
		parts.Go(func() {
			var part SendResult
			rest := a.appendPart(ctx, topic, p, records, &part)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, rest...)
			sent.Acked, sent.refused = append(sent.Acked, part.Acked...), append(sent.refused, part.refused...)
		})
	}
	parts.Wait()
	return left
}

// appendPart appends records to one partition, and returns the records that are left.
func (a *appender) appendPart(ctx context.Context, topic string, p int, records []wire.RawRecord, sent *SendResult) []wire.RawRecord {
	request := func(records []wire.RawRecord) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lingering, cancel := retry.Linger(ctx, retry.LingerTime)
		defer cancel()
		at, err := a.pipes[p](lingering, topic, p, records)
		switch {
		case err == nil:
			sent.Acked = append(sent.Acked, Acked{records, at, time.Now()})
		case errors.Is(err, wire.ErrUnanswered) && a.claim.Err() == nil && a.o.Repeated != nil:
			a.o.Repeated(len(records)) // the retry uses another producer id
		}
		return err
	}
	left, _ := AppendPart(records, request, func(r wire.RawRecord, err error) {
		sent.refused = append(sent.refused, refused{r, err})
	})
	return left
}
