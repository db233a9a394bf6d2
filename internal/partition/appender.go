package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"orderclose"
)

// An append that ends without an ack or a definite no may say more:
var (
	// ErrNoPartition: the topic does not have the partition any more, or does not exist.
	ErrNoPartition = errors.New("there is no such partition")
	// ErrUnanswered: the records may have been written.
	ErrUnanswered = errors.New("an answer is missing")
)

// SendResult is the outcome of an attempt to append records to one topic. Records that the
// broker refuses for good are neither acked nor left: they become dead letters.
type SendResult struct {
	Topic string
	Began time.Time
	Acked []Acked
	// Left was not acked within the time limit. Some of it may have been written all the
	// same, which is counted.
	Left []orderclose.RawRecord
	// Pause is how long the topic rests now, if something is left.
	Pause time.Duration

	refused []refused
}

// Acked is one request that was acked.
type Acked struct {
	Records  []orderclose.RawRecord
	At       time.Time // when the broker appended them, by its own clock; zero if that is unknown
	Answered time.Time // when the ack was here, by the local clock
}

// refused is a record that the broker will never accept, and why.
type refused struct {
	record orderclose.RawRecord
	err    error
}

// appender appends records of a claim to one topic, each to the partition of its key.
// It has a producer id of its own for each partition, so that several may be under way at
// once: a partition without a leader holds up no other.
type appender struct {
	o     *OutOptions
	claim context.Context
	pipes map[int]orderclose.AppendFunc
	pulse Pulse
	// spread sorts records by their partition.
	spread func(ctx context.Context, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
}

// try appends the records until everything is acked or refused, ctx ends, or the claim
// does. No request is begun after that. The requests that are under way then are
// awaited, and sent again if an answer is missing, for LingerTime.
func (a *appender) try(ctx context.Context, topic string, records []orderclose.RawRecord, sent *SendResult) {
	for len(records) > 0 {
		var spread map[int][]orderclose.RawRecord
		ok := retry(ctx, a.o.Logger, "finding the partitions of "+topic, func(ctx context.Context) (err error) {
			a.pulse.Beat()
			spread, err = a.spread(ctx, topic, records)
			return err
		})
		if !ok {
			break
		}
		records = a.appendAll(ctx, topic, spread, sent)
	}
	sent.Left = records
}

// appendAll appends the records of each partition, and returns what is left because ctx
// has ended or a partition is gone.
func (a *appender) appendAll(ctx context.Context, topic string, spread map[int][]orderclose.RawRecord, sent *SendResult) (left []orderclose.RawRecord) {
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

// appendPart appends records to one partition in as many requests as they need, and
// returns what is left.
func (a *appender) appendPart(ctx context.Context, topic string, p int, records []orderclose.RawRecord, sent *SendResult) []orderclose.RawRecord {
	for len(records) > 0 {
		n := orderclose.Fitting(records)
		if left := a.request(ctx, topic, p, records[:n:n], sent); len(left) > 0 {
			return slices.Concat(left, records[n:])
		}
		records = records[n:]
	}
	return nil
}

// request writes one request, and returns what is left of it. Records that the broker
// refuses together are tried in halves, down to those that are to blame.
func (a *appender) request(ctx context.Context, topic string, p int, records []orderclose.RawRecord, sent *SendResult) (left []orderclose.RawRecord) {
	if ctx.Err() != nil {
		return records
	}
	lingering, cancel := Linger(ctx, LingerTime)
	at, err := a.pipes[p](lingering, topic, p, records)
	cancel()
	switch {
	case err == nil:
		sent.Acked = append(sent.Acked, Acked{records, at, time.Now()})
		return nil
	case !errors.Is(err, orderclose.ErrRefused):
		if errors.Is(err, ErrUnanswered) && a.claim.Err() == nil && a.o.Repeated != nil {
			a.o.Repeated(len(records)) // they are to be sent again, under another producer id
		}
		return records
	case len(records) > 1:
		half := len(records) / 2
		left = a.request(ctx, topic, p, records[:half:half], sent)
		return append(left, a.request(ctx, topic, p, records[half:], sent)...)
	}
	sent.refused = append(sent.refused, refused{records[0], err})
	return nil
}
