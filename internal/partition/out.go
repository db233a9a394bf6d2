package partition

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"orderclose"
)

// LingerTime is how long what is under way is awaited after a revocation: an answer of
// Kafka's, a transaction, a call.
const LingerTime = 2 * time.Second

// An append that ends without an ack or a definite no may say more:
var (
	// ErrNoPartition: the topic does not have the partition any more, or does not exist.
	ErrNoPartition = errors.New("there is no such partition")
	// ErrUnanswered: the records may have been written.
	ErrUnanswered = errors.New("an answer is missing")
)

// OutLog is where records go; see kafka.Cluster for the contract.
type OutLog interface {
	Spread(ctx context.Context, claim orderclose.Claim, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// OutOptions for an Out. All must be set.
type OutOptions struct {
	Log             OutLog
	Claim           orderclose.Claim
	Stage           string // for dead letters
	DeadLetterTopic string
	ControlTopic    string
	DeadLettered    func(stage, cause string) // counts one
	Trying          func()                    // is told before each try; may be nil
	Repeated        func(records int)         // counts records that may have been written twice
	Logger          *slog.Logger
}

// Out is where the records of a claim go. It appends until the records are
// acked or the claim's context ends; those that Kafka refuses for good it buries.
// It belongs to the claim's loop.
type Out struct {
	*Graveyard
	o      OutOptions
	ctx    context.Context // of the claim
	append orderclose.AppendFunc
	wake   time.Time // when the loop wakes at the latest; see Held
}

// NewOut returns an Out that ends with ctx.
func NewOut(ctx context.Context, o OutOptions) *Out {
	return &Out{newGraveyard(ctx, o), o, ctx, o.Log.Idempotent(o.Trying, o.Repeated), time.Now()}
}

// Append writes records to a topic, each to the partition of its key, and calls
// acked with those of each request that was acked, and the broker's append time
// if it is known. It reports false if the claim ended first; some may have been
// acked by then. A record that Kafka refuses for good is buried and not acked.
func (o *Out) Append(topic string, records []orderclose.RawRecord, acked func(records []orderclose.RawRecord, at time.Time)) bool {
	return len(o.spread(o.ctx, topic, records, acked)) == 0
}

// AppendWithin is Append that begins no try after the patience has run out, and
// returns what was neither acked nor buried. Some of it may have been written all
// the same, which is counted.
func (o *Out) AppendWithin(patience time.Duration, topic string, records []orderclose.RawRecord, acked func(records []orderclose.RawRecord, at time.Time)) (left []orderclose.RawRecord) {
	ctx, cancel := context.WithTimeout(o.ctx, patience)
	defer cancel()
	return o.spread(ctx, topic, records, acked)
}

// spread appends until everything is acked or buried, or ctx ends, and returns what
// is left then. What goes to a partition that is no more is spread anew.
func (o *Out) spread(ctx context.Context, topic string, records []orderclose.RawRecord, acked func(records []orderclose.RawRecord, at time.Time)) []orderclose.RawRecord {
	for len(records) > 0 {
		var spread map[int][]orderclose.RawRecord
		ok := retry(ctx, o.o.Logger, "finding the partitions of "+topic, func(ctx context.Context) (err error) {
			if o.o.Trying != nil {
				o.o.Trying()
			}
			spread, err = o.o.Log.Spread(ctx, o.o.Claim, topic, records)
			return err
		})
		if !ok {
			return records
		}
		records = nil
		for p, part := range spread {
			for gone := false; len(part) > 0 && !gone; {
				n := orderclose.Fitting(part)
				left := o.appendTo(ctx, topic, p, part[:n:n], acked, o.bury)
				gone = len(left) > 0
				records, part = append(records, left...), part[n:]
			}
			records = append(records, part...)
		}
	}
	return nil
}

// bury makes a dead letter of a record that Kafka refused for good.
func (o *Out) bury(r orderclose.RawRecord, err error) { o.BuryRaw(r, "refused", err.Error()) }

// Begin tells of a claim of which nothing was committed: what was in the topic
// before, if anything, nobody can say.
func (o *Out) Begin(c *Committer) {
	if o.o.Claim.Fresh {
		o.TellLost(orderclose.Range{First: 0, Last: o.o.Claim.Offset - 1},
			"nothing was committed: this is the first start, or the topic was deleted", c)
	}
}

// TellLost tells the control topic that records are gone, and once that is acked
// has the position committed from which reading goes on. If the claim ends first
// nobody was told and nothing is committed: the next owner finds the same. A control
// topic that refuses for good stops nobody: the log tells of the loss.
func (o *Out) TellLost(r orderclose.Range, reason string, c *Committer) {
	lost := orderclose.Lost{Topic: o.o.Claim.Topic, Partition: o.o.Claim.Partition, First: r.First, Last: r.Last, Reason: reason}
	m := lost.Encode()
	told := func([]orderclose.RawRecord, time.Time) { c.TellNow(time.Now()) }
	for left := []orderclose.RawRecord{m.Raw()}; len(left) > 0 && o.ctx.Err() == nil; {
		left = o.appendTo(o.ctx, o.o.ControlTopic, 0, left, told, func(_ orderclose.RawRecord, err error) {
			o.o.Logger.Error("the control topic refuses to be told of a loss: compare it with what it must look like, with orderclose topics check",
				"control", o.o.ControlTopic, "first", r.First, "last", r.Last, "reason", reason, "err", err)
			c.TellNow(time.Now())
		})
	}
}

// appendTo writes one request, and returns what is left of it because ctx has ended
// or the partition is gone. Records that the broker refuses together are tried in
// halves, down to those that are to blame. After ctx has ended none is begun, so that
// there is one answer to wait for at most.
func (o *Out) appendTo(ctx context.Context, topic string, p int, records []orderclose.RawRecord,
	acked func(records []orderclose.RawRecord, at time.Time), refused func(r orderclose.RawRecord, err error)) (left []orderclose.RawRecord) {
	if ctx.Err() != nil {
		return records
	}
	lingering, cancel := Linger(ctx, LingerTime)
	at, err := o.append(lingering, topic, p, records)
	cancel()
	switch {
	case err == nil:
		acked(records, at)
		return nil
	case !definite(err):
		if errors.Is(err, ErrUnanswered) && o.ctx.Err() == nil && o.o.Repeated != nil {
			o.o.Repeated(len(records)) // they are to be sent again, under another producer id
		}
		return records
	case len(records) > 1:
		half := len(records) / 2
		left = o.appendTo(ctx, topic, p, records[:half:half], acked, refused)
		return append(left, o.appendTo(ctx, topic, p, records[half:], acked, refused)...)
	}
	refused(records[0], err)
	return nil
}

// lateWake is how much later than planned a loop may wake before it asks whether
// the partition is still its own: with the 5 s that loops sleep at most, less than a
// session lasts.
const lateWake = 500 * time.Millisecond

// Sleeping notes that the loop wakes after d at the latest, and returns d:
//
//	timer.Reset(out.Sleeping(d))
//	… wakes …
//	if !out.Held() { return }
func (o *Out) Sleeping(d time.Duration) time.Duration {
	o.wake = time.Now().Add(d)
	return d
}

// Held reports whether the claim is still ours, as far as it can be known. A loop
// that was stopped for longer than the group waits, with its process or its
// machine, wakes with records that another owner has moved already: one that wakes
// much later than planned asks first, and is told by a refused commit.
func (o *Out) Held() bool {
	late := time.Since(o.wake) > lateWake
	o.wake = time.Now()
	return !late || o.o.Claim.Confirm == nil ||
		o.Retry("asking whether the partition is still ours", o.o.Claim.Confirm)
}

// Retry does something until it succeeds, or reports false when the claim has
// ended. What was begun before that may finish within 2 s; nothing is begun
// after.
func (o *Out) Retry(what string, do func(ctx context.Context) error) bool {
	return retry(o.ctx, o.o.Logger, what, do)
}

func retry(claim context.Context, logger *slog.Logger, what string, do func(ctx context.Context) error) bool {
	ctx, cancel := Linger(claim, LingerTime)
	defer cancel()
	pauses := NewBackOff()
	for claim.Err() == nil {
		err := do(ctx)
		if err == nil {
			return true
		}
		if claim.Err() != nil {
			return false
		}
		if pauses.Say() {
			logger.Warn(what+" failed, trying again", "err", err)
		}
		if !Sleep(claim, pauses.NextBackOff()) {
			return false
		}
	}
	return false
}

// definite says whether the broker will never take these very records.
func definite(err error) bool {
	return errors.Is(err, orderclose.ErrTooLarge) || errors.Is(err, orderclose.ErrRefused)
}
