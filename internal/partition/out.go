package partition

import (
	"context"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// OutLog appends records; see Log for the contract.
type OutLog interface {
	GroupForClaim(ctx context.Context, claim wire.Claim, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)
	Idempotent(trying func(), repeated func(records int)) wire.AppendFunc
}

// OutOptions are the options of an Out. All are required, except those that say otherwise.
type OutOptions struct {
	Log             OutLog
	Claim           wire.Claim
	Stage           string                    // for dead letters
	DeadLetterTopic string                    // "": a record that is given up is only logged
	ControlTopic    string                    // for notices of losses; "" if PublishLoss is never called
	DeadLettered    func(stage, cause string) // counts one dead letter
	Trying          func()                    // called before each attempt of the ownership check; may be nil
	Repeated        func(records int)         // counts records that may have been written twice; may be nil
	Logger          *slog.Logger
}

// group groups records of the claim by their partition of a topic.
func (o *OutOptions) group(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	return o.Log.GroupForClaim(ctx, o.Claim, topic, records)
}

// allTo returns a GroupFunc that puts all records into one partition.
func allTo(partition int) GroupFunc {
	return func(_ context.Context, _ string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
		return map[int][]wire.RawRecord{partition: records}, nil
	}
}

// Out appends the records of a claim: to other topics (Senders), to the dead-letter topic
// (DeadLetters), and notices of losses to the control topic. It belongs to the goroutine of
// the claim's loop.
type Out struct {
	*DeadLetters
	*Senders
	opts      OutOptions
	ctx       context.Context // the claim's context
	wake      time.Time       // when the loop wakes at the latest; see StillAssigned
	control   *topicSender
	losses    []wire.RawRecord // notices that wait for an append
	committer *Committer       // held until the notices are acked
}

// NewOut returns an Out that ends with ctx, the claim's context.
func NewOut(ctx context.Context, o OutOptions) *Out {
	out := &Out{DeadLetters: newDeadLetters(ctx, o), opts: o, ctx: ctx, wake: time.Now()}
	out.Senders = newSenders(ctx, &out.opts, func(r refusal) { out.DeadLetterRaw(r.record, CauseRefused, r.err.Error()) })
	out.control = newTopicSender(ctx, &out.opts, o.ControlTopic)
	out.control.group = allTo(0)
	out.control.onRefused = out.handleRefusedLoss
	return out
}

// StartWaiting starts to append the waiting dead letters and notices of losses.
func (o *Out) StartWaiting() {
	o.StartDeadLetters()
	o.sendLosses()
}

// Hangs reports whether an append in flight shows no sign of life.
func (o *Out) Hangs() bool { return o.Senders.Hangs() || o.control.hangs() }

// Wait waits for the appends in flight, after the claim has ended, and passes the acked
// dead letters to acked.
func (o *Out) Wait(acked func([]wire.RawRecord)) {
	o.WaitSent()
	o.WaitDeadLetters(acked)
}

// lateWake is how much later than planned a loop may wake before it checks that the
// partition is still assigned to it. Together with the 5 s that loops sleep at most, it
// is less than the session timeout.
const lateWake = 500 * time.Millisecond

// Sleeping notes that the loop plans to wake after d at the latest, and returns d:
//
//	timer.Reset(out.Sleeping(d))
//	… wakes …
//	if !out.StillAssigned() { return }
func (o *Out) Sleeping(d time.Duration) time.Duration {
	o.wake = time.Now().Add(d)
	return d
}

// StillAssigned reports whether the claim is still assigned to this process, as far as that
// can be known. If a process or its machine is stopped for longer than the session timeout, its
// loops wake with records that another owner has handled already. So a loop that wakes much
// later than planned first checks with Confirm, a commit that the group refuses to a
// former owner.
func (o *Out) StillAssigned() bool {
	late := time.Since(o.wake) > lateWake
	o.wake = time.Now()
	return !late || o.opts.Claim.Confirm == nil ||
		o.Retry("ownership check", func(ctx context.Context) error {
			if o.opts.Trying != nil {
				o.opts.Trying()
			}
			return o.opts.Claim.Confirm(ctx)
		})
}

// Retry calls do until it succeeds, or returns false when the claim has ended. A call that
// is in flight then may take LingerTime more, and no other call begins. what names the work in
// the log.
func (o *Out) Retry(what string, do func(ctx context.Context) error) bool {
	return retry.Do(o.ctx, o.opts.Logger, what, do)
}
