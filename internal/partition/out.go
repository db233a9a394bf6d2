package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"orderclose"
)

// lingerTime is how long an answer in flight is awaited after a revocation.
const lingerTime = 2 * time.Second

// OutLog appends to partitions; see kafka.Cluster for the contract.
type OutLog interface {
	Place(ctx context.Context, topic string, messages []orderclose.Message) ([]int, error)
	Append(ctx context.Context, topic string, partition int, messages []orderclose.Message) (time.Time, error)
}

// Out is where the records of a claim go. It appends until the records are
// acked or the claim's context ends, and turns records that Kafka refuses for
// good into dead letters. It belongs to the claim's loop.
type Out struct {
	Ctx             context.Context // of the claim
	Log             OutLog
	Stage           string // for dead letters
	DeadLetterTopic string
	DeadLettered    func(stage, cause string) // counts one
	Logger          *slog.Logger
}

// Append writes messages to a topic, each to the partition of its key, and calls
// acked for each that is acked, with the broker's append time if it is known. It
// reports false if the claim ended first; some may have been acked by then. For a
// message that had to become a dead letter instead, acked is called with a zero
// time once the dead letter is acked.
func (o *Out) Append(topic string, messages []orderclose.Message, acked func(m orderclose.Message, at time.Time)) bool {
	if len(messages) == 0 {
		return true
	}
	var places []int
	ok := o.Retry("finding the partitions of "+topic, func(ctx context.Context) (err error) {
		places, err = o.Log.Place(ctx, topic, messages)
		return err
	})
	byPartition := map[int][]orderclose.Message{}
	for i, p := range places {
		byPartition[p] = append(byPartition[p], messages[i])
	}
	for p, part := range byPartition {
		for ok && len(part) > 0 {
			n := orderclose.Fitting(part)
			ok = o.appendTo(topic, p, part[:n:n], acked)
			part = part[n:]
		}
	}
	return ok
}

// appendTo writes one request. Messages that the broker refuses together are
// tried in halves, down to those that are to blame.
func (o *Out) appendTo(topic string, p int, messages []orderclose.Message, acked func(m orderclose.Message, at time.Time)) bool {
	var at time.Time
	var refused error
	ok := o.Retry(fmt.Sprintf("appending to %s/%d", topic, p), func(ctx context.Context) (err error) {
		at, err = o.Log.Append(ctx, topic, p, messages)
		// A dead letter was cut to fit: if it is refused the topic's limits are wrong,
		// which a person has to mend.
		if definite(err) && topic != o.DeadLetterTopic {
			refused = err
			return nil
		}
		return err
	})
	switch {
	case !ok:
		return false
	case refused == nil:
		for _, m := range messages {
			acked(m, at)
		}
		return true
	case len(messages) == 1:
		dead := o.Dead(messages[0], "refused", refused.Error())
		return o.Append(o.DeadLetterTopic, []orderclose.Message{dead}, func(m orderclose.Message, _ time.Time) { acked(m, time.Time{}) })
	}
	half := len(messages) / 2
	return o.appendTo(topic, p, messages[:half:half], acked) && o.appendTo(topic, p, messages[half:], acked)
}

// Dead makes a dead letter of m and counts it. It keeps m's offset, so that m
// can be marked done when it is acked.
func (o *Out) Dead(m orderclose.Message, cause, detail string) orderclose.Message {
	o.Logger.Error("dead letter", "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	o.DeadLettered(o.Stage, cause)
	dead := orderclose.DeadLetter(m, o.Stage, cause, detail)
	dead.Offset = m.Offset
	return dead
}

// Unreadable makes a dead letter of a record that m.Due or m.Decode refused.
func (o *Out) Unreadable(m orderclose.Message, err error) orderclose.Message {
	cause := "unreadable"
	if bad := (*orderclose.RecordError)(nil); errors.As(err, &bad) {
		cause = bad.Reason.Error()
	}
	return o.Dead(m, cause, err.Error())
}

// Corrupt makes a dead letter that stands for a range of the claim of which
// nothing but the offsets is known.
func (o *Out) Corrupt(claim orderclose.Claim, r orderclose.Range) orderclose.Message {
	m := orderclose.Message{Topic: claim.Topic, Partition: claim.Partition, Offset: r.First}
	return o.Dead(m, "corrupt", fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
}

// Retry does something until it succeeds, or reports false when the claim has
// ended. What was begun before that may finish within 2 s.
func (o *Out) Retry(what string, do func(ctx context.Context) error) bool {
	ctx, cancel := Linger(o.Ctx, lingerTime)
	defer cancel()
	pauses := NewBackOff()
	for {
		err := do(ctx)
		if err == nil {
			return true
		}
		if o.Ctx.Err() != nil {
			return false
		}
		o.Logger.Warn(what+" failed, trying again", "err", err)
		if !Sleep(o.Ctx, pauses.NextBackOff()) {
			return false
		}
	}
}

func definite(err error) bool {
	return errors.Is(err, orderclose.ErrTooLarge) || errors.Is(err, orderclose.ErrRefused)
}
