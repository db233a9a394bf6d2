package partition

import (
	"context"
	"log/slog"
	"time"

	"orderclose"
)

// LingerTime is how long what is under way is awaited after a revocation: an answer of
// Kafka's, a transaction, a call.
const LingerTime = 2 * time.Second

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
	Trying          func()                    // is called before each try that the loop waits for; may be nil
	Repeated        func(records int)         // counts records that may have been written twice
	Logger          *slog.Logger
}

// Out is where the records of a claim go: to other topics (Senders), to the dead letters
// (Graveyard), and losses to the control topic. It belongs to the claim's loop.
type Out struct {
	*Graveyard
	*Senders
	o       OutOptions
	ctx     context.Context // of the claim
	wake    time.Time       // when the loop wakes at the latest; see Held
	control *sending
	losses  []orderclose.RawRecord // that are to be told
	mark    *Committer             // is held until they were
}

// NewOut returns an Out that ends with ctx.
func NewOut(ctx context.Context, o OutOptions) *Out {
	out := &Out{Graveyard: newGraveyard(ctx, o), o: o, ctx: ctx, wake: time.Now()}
	out.Senders = newSenders(ctx, &out.o, func(r refused) { out.BuryRaw(r.record, "refused", r.err.Error()) })
	out.control = newSending(ctx, &out.o, o.ControlTopic)
	out.control.spread = func(_ context.Context, _ string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
		return map[int][]orderclose.RawRecord{0: records}, nil
	}
	out.control.refused = out.lossRefused
	return out
}

// StartWaiting begins to append the dead letters and to tell the losses that wait.
func (o *Out) StartWaiting() {
	o.StartBurying()
	o.startTelling()
}

// Hang reports whether something is under way that shows no sign of life.
func (o *Out) Hang() bool { return o.Senders.Hang() || o.control.hangs() }

// Wait waits for what is under way, after the claim has ended, and passes on the dead
// letters that were acked by it.
func (o *Out) Wait(buried func([]orderclose.RawRecord)) {
	o.WaitSent()
	o.WaitBuried(buried)
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
		o.Retry("asking whether the partition is still ours", func(ctx context.Context) error {
			if o.o.Trying != nil {
				o.o.Trying()
			}
			return o.o.Claim.Confirm(ctx)
		})
}

// Retry does something until it succeeds, or reports false when the claim has ended.
// A call of do that was begun before that may take LingerTime more; no other call is
// begun.
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
