package closer

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// parkLimit is how long an order that is nearly due waits in memory. Longer waits go
	// through a bucket, where they cost no memory and survive a crash.
	parkLimit = 10 * time.Second
	// contendedWait is the wait before an order with a locked row is tried again. The
	// transaction of a checkout takes milliseconds; an operator ends one that hangs.
	contendedWait = time.Second
	// pausedWait is the wait before a store that is paused for all orders is tried again.
	pausedWait = 2 * time.Second
	// blockedWait is the wait of an order that is paused, and of one that is contended or without a verdict if
	// memory has no room for it: the same as after a first failure.
	blockedWait = retryBase
	// After notDueRounds early arrivals for one due time, every other wait is in memory, so that two clocks that disagree do not
	// send the record in circles.
	notDueRounds = 2
	// doubtWait is the longest wait in memory of an order that came early again.
	doubtWait = time.Minute

	// maxOrderRetries is how often an order that could not be closed is retried: after 1, 2
	// and 4 minutes. In that time a lagging replica catches up, and an operator may fix a
	// wrong row. Then the order becomes a dead letter.
	maxOrderRetries = 3
	retryBase       = time.Minute
	// paymentTimeout is how long a payment may stay unknown, counted from the provider's
	// first answer that it does not know. The provider is asked again after 1, 2, 4, 8
	// and then every 15 minutes.
	paymentTimeout   = 24 * time.Hour
	paymentRetryBase = time.Minute
	paymentRetryMax  = 15 * time.Minute
	// jitterDivisor bounds the jitter to a tenth of a wait. Jitter keeps orders that
	// failed together from returning together.
	jitterDivisor = 10
)

// Causes of retries and dead letters.
const (
	causeFailed     = string(orderclose.Failed)
	causeNotFound   = string(orderclose.NotFound)
	causePending    = string(orderclose.PaymentPending)
	causeContended  = string(orderclose.Contended)
	causePaused     = string(orderclose.Paused)
	causeNoVerdict  = "no_verdict"         // the store gave this order no verdict, but gave one to others
	causeUnresolved = "payment_unresolved" // the provider did not know for paymentTimeout
)

// action is what happens to a record after its order was tried.
type action int

const (
	settle   action = iota // finished: the offset may be committed
	park                   // try again from memory
	schedule               // append to a bucket
	giveUp                 // append to the dead letters
)

// decision is an action and its parameters.
type decision struct {
	action action
	// wait and record are set if the action is park or schedule: the wait from now, and the record of
	// the next round. retryRecord adds the record's release time and origin.
	wait   time.Duration
	record wire.Record
	// bucketWait may be set if the action is park: the wait in a bucket, if memory has no room. If it
	// is 0, inBucket chooses the wait.
	bucketWait time.Duration
	retry      bool // the order counts as retried: its close failed, or its payment is pending
	// cause is the reason in one word, detail the reason in a sentence. Both are set if the order is
	// retried or given up, if it has no verdict, and if it is contended or paused.
	cause, detail string
}

// decide returns what to do with record r after outcome o. The time at is the present by
// the database's clock. jitter, from 0 to 1, is the part of the possible jitter that a wait
// gets.
func decide(r wire.Record, o orderclose.Outcome, at time.Time, jitter float64) decision {
	if o.Verdict == "" && o.Err != nil {
		return decision{action: park, wait: contendedWait, record: r, cause: causeNoVerdict, detail: o.Err.Error()} //mutant:no-verdict-settled
	}
	switch o.Verdict {
	case orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.Excluded:
		return decision{}
	case orderclose.NotDue:
		if orderclose.IsNever(o.Due) { // it got this due time after its record was sent //mutant:never-due-continues
			return decision{}
		}
		if o.Remaining() <= 0 { // such a Store would be asked again at once, without end
			why := fmt.Sprintf("the store returned not_due, but the due time %v is not after its clock, %v", o.Due, o.At)
			return failed(r, causeFailed, why, jitter)
		}
		return notDue(r, o)
	case orderclose.Contended:
		_, why := o.Why()
		return decision{action: park, wait: contendedWait, record: r, cause: causeContended, detail: why}
	case orderclose.Paused:
		wait := addJitter(blockedWait, jitter) //mutant:paused-asked-often
		return decision{action: park, wait: wait, bucketWait: wait, record: r, cause: causePaused, detail: "its close is paused"}
	case orderclose.PaymentPending:
		return paymentPending(r, at, jitter)
	case orderclose.NotFound, orderclose.Failed:
		_, why := o.Why()
		return failed(r, string(o.Verdict), why, jitter)
	}
	return failed(r, causeFailed, fmt.Sprintf("the store returned the unknown verdict %q", o.Verdict), jitter)
}

// failed schedules a retry, or gives the order up after maxOrderRetries.
func failed(r wire.Record, cause, detail string, jitter float64) decision {
	d := decision{action: giveUp, cause: cause, detail: detail}
	if r.Attempt < maxOrderRetries { //mutant:order-retried-forever
		d.action, d.retry, d.wait = schedule, true, addJitter(retryBase<<r.Attempt, jitter)
		r.Attempt++
		r.Cause = cause
		d.record = r
	}
	return d
}

// paymentPending schedules the next question to the payment provider, until paymentTimeout after the
// first one. It uses up no retry. The wait is a minute plus the time that the order has
// waited already, which doubles it each time.
func paymentPending(r wire.Record, at time.Time, jitter float64) decision {
	if r.PendingSince.IsZero() {
		r.PendingSince = at
	}
	waited := max(at.Sub(r.PendingSince), 0)
	if waited >= paymentTimeout { //mutant:payment-asked-forever
		return decision{action: giveUp, cause: causeUnresolved,
			detail: fmt.Sprintf("the payment provider did not know for %v whether the order is paid", waited.Round(time.Second))}
	}
	r.Cause = causePending
	wait := addJitter(min(waited+paymentRetryBase, paymentRetryMax), jitter)
	return decision{action: schedule, retry: true, wait: min(wait, paymentTimeout-waited), record: r,
		cause: causePending, detail: "the payment provider does not know yet whether the order is paid"}
}

// addJitter makes a wait longer by up to a tenth.
func addJitter(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d/jitterDivisor)*jitter)
}

// notDue makes the order wait for its remaining time by the database's clock, which
// decides when an order is due: in memory if it is due within parkLimit, and otherwise in a bucket. If the due time has changed, all
// counters restart. The record came too early more than notDueRounds times if the clock of its relay is wrong.
func notDue(r wire.Record, o orderclose.Outcome) decision {
	if !orderclose.CeilMilli(o.Due).Equal(orderclose.CeilMilli(r.Order.Due)) { // records have whole milliseconds
		r.Order.Due, r.Order.Deadline = o.Due, time.Time{}
		r.NotDue, r.Attempt, r.Cause, r.PendingSince, r.Origin = 0, 0, "", time.Time{}, wire.Origin{} //mutant:moved-keeps-failures
	}
	remaining := o.Remaining()
	if remaining <= parkLimit {
		return decision{action: park, wait: remaining, record: r}
	}
	r.NotDue++
	d := decision{action: schedule, wait: remaining, record: r}
	if r.NotDue > notDueRounds && r.NotDue%2 == 1 { //mutant:records-in-circles
		return d.inMemory()
	}
	return d
}

// Offsets of time zones are whole quarter-hours, up to 14 hours. A mistake of zones shifts a time by
// exactly that, but for what is rounded.
const (
	zoneStep      = 15 * time.Minute
	maxZone       = 14 * time.Hour
	zoneTolerance = time.Second
)

// zoneShift returns by how much the due time in the database is later than that of the record, if a
// mistake of time zones explains the difference; otherwise 0.
func zoneShift(record, row time.Time) time.Duration {
	shift := row.Sub(record)
	whole := shift.Round(zoneStep)
	if row.IsZero() || whole.Abs() > maxZone || (shift-whole).Abs() > zoneTolerance {
		return 0
	}
	return whole
}

// inMemory turns a wait in a bucket into a wait in memory, because a clock is in doubt: a release time might be wrong. A wait that
// follows from the clocks is cut to doubtWait.
func (d decision) inMemory() decision {
	if d.action != schedule {
		return d
	}
	d.action, d.bucketWait = park, d.wait
	if d.cause == "" || d.cause == causePending {
		d.wait = min(d.wait, doubtWait)
	}
	return d
}

// inBucket turns a wait in memory into a wait in a bucket, because memory has no room. It
// uses up no retry. An order that is nearly due keeps its wait, so it is not later.
func (d decision) inBucket(jitter float64) decision {
	d.action = schedule
	switch {
	case d.bucketWait > 0:
		d.wait = d.bucketWait
	case d.cause != "":
		d.retry, d.wait = true, addJitter(blockedWait, jitter)
		d.record.Cause = d.cause
	}
	return d
}

// retryRecord returns the record for the next round. Its release time is at, by
// the database's clock, plus the wait. For a retried record, Origin holds the coordinates of
// the first failed record.
func (d decision) retryRecord(at time.Time, here wire.Origin) wire.Record {
	r := d.record
	r.Release = at.Add(d.wait)
	if d.retry && r.Origin.Topic == "" {
		r.Origin = here
	}
	return r
}
