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
	// been written nevertheless; OutOptions.Repeated counts them.
	Left []wire.RawRecord
	// Pause is how long the topic rests now, if Left is not empty.
	Pause time.Duration

	refusals []refusal
}

// Acked is one acked request.
type Acked struct {
	Records  []wire.RawRecord
	At       time.Time // the broker's append time, by its own clock; zero if unknown
	Answered time.Time // when the ack arrived, by the local clock
}

// refusal is a record that the broker refuses for good, and its error.
type refusal struct {
	record wire.RawRecord
	err    error
}

// appender appends records of a claim to one topic, each to the partition of its key. It
// has a producer id for each partition, so that requests to several partitions may be in
// flight at once: a partition without a leader delays no other.
type appender struct {
	opts        *OutOptions
	claimCtx    context.Context
	appendFuncs map[int]wire.AppendFunc
	pulse       Pulse
	group       GroupFunc
}

// try appends the records until all are acked or refused, or ctx ends. ctx is derived from the
// claim's context. After ctx has ended no append is started. try then waits for the appends in
// flight, which may resend their records for LingerTime.
func (a *appender) try(ctx context.Context, topic string, records []wire.RawRecord, sent *SendResult) {
	for len(records) > 0 {
		var byPartition map[int][]wire.RawRecord
		ok := retry.Do(ctx, a.opts.Logger.With("to", topic), "partition lookup", func(ctx context.Context) (err error) {
			a.pulse.Beat()
			byPartition, err = a.group(ctx, topic, records)
			return err
		})
		if !ok {
			break
		}
		records = a.appendAll(ctx, topic, byPartition, sent)
	}
	sent.Left = records
}

// appendAll appends the records of each partition. It returns the records that are left
// because ctx has ended or a partition does not exist.
func (a *appender) appendAll(ctx context.Context, topic string, byPartition map[int][]wire.RawRecord, sent *SendResult) (left []wire.RawRecord) {
	for p := range byPartition {
		if a.appendFuncs[p] == nil {
			a.appendFuncs[p] = a.opts.Log.Idempotent(a.pulse.Beat, a.opts.Repeated)
		}
	}
	if len(byPartition) == 1 {
		for p, records := range byPartition {
			left = a.appendPart(ctx, topic, p, records, sent)
		}
		return left
	}
	var mu sync.Mutex
	var parts sync.WaitGroup
	for p, records := range byPartition {
		parts.Go(func() {
			var part SendResult
			rest := a.appendPart(ctx, topic, p, records, &part)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, rest...)
			sent.Acked, sent.refusals = append(sent.Acked, part.Acked...), append(sent.refusals, part.refusals...)
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
		at, err := a.appendFuncs[p](lingering, topic, p, records)
		switch {
		case err == nil:
			sent.Acked = append(sent.Acked, Acked{records, at, time.Now()})
		case errors.Is(err, wire.ErrUnanswered) && a.claimCtx.Err() == nil && a.opts.Repeated != nil:
			a.opts.Repeated(len(records)) // the retry uses another producer id
		}
		return err
	}
	left, _ := AppendPart(records, request, func(r wire.RawRecord, err error) {
		sent.refusals = append(sent.refusals, refusal{r, err})
	})
	return left
}
