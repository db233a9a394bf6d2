package closer

import (
	"fmt"
	"time"

	"orderclose"
)

const (
	// parkLimit is how long an order that is nearly due waits in memory; longer
	// waits go through a bucket, where they cost nothing and survive a crash.
	parkLimit = 10 * time.Second
	// contendedWait is how soon an order is tried again whose row somebody holds: a
	// checkout's transaction takes milliseconds, one that hangs is ended by hand.
	contendedWait = 3 * time.Second
	// blockedWait is how soon an order is tried again that is contended or got no verdict,
	// if there is no room for it in memory: as soon as one that failed.
	blockedWait = retryBase
	// politeRounds is how often a record may be released too early for the same due time.
	// Each further round waits longer than the remaining time, so that two clocks that
	// disagree do not send the record in circles.
	politeRounds = 2
	politeBase   = 5 * time.Second
	politeMax    = time.Minute
	// wrongClockSkew is the largest difference between the brokers' clock and the clock of
	// the database or of this machine at which the closer still believes all three. Above
	// it, an order that is not due or is retried waits in memory, by the monotonic clock.
	// A release time would be computed from a clock that may be wrong, and the record would
	// keep that time after the clock is corrected.
	wrongClockSkew = 30 * time.Second

	// maxRetries is how often an order is tried again that could not be closed: after
	// 1, 2 and 4 minutes, in which a lagging replica catches up and a wrong row may be
	// mended. Then a person has to look.
	maxRetries = 3
	retryBase  = time.Minute
	// pendingFor is how long the payment provider may not know, from the first time
	// that it did not. It is asked again after 1, 2, 4, 8 and then every 15 minutes.
	pendingFor  = 24 * time.Hour
	pendingBase = time.Minute
	pendingMax  = 15 * time.Minute
	// spreadPart is the part of a wait that may be added to it, so that what failed
	// together does not come back together.
	spreadPart = 10
)

// Causes of retries and dead letters.
const (
	causeFailed     = string(orderclose.Failed)
	causeNotFound   = string(orderclose.NotFound)
	causePending    = string(orderclose.PaymentPending)
	causeContended  = string(orderclose.Contended)
	causeNoVerdict  = "no_verdict"         // the store gave none, and one to others
	causeUnresolved = "payment_unresolved" // the provider did not know for pendingFor
)

// action is what to do with a record after its order was tried.
type action int

const (
	settle   action = iota // nothing more to do
	park                   // try again in this process
	schedule               // put it into a bucket again
	give                   // give it up: dead letter
)

// decision is an action and what it needs.
type decision struct {
	action action
	wait   time.Duration     // park, schedule: how long from now
	bucket time.Duration     // park: how long in a bucket, if there is no room in memory; 0: see elsewhere
	record orderclose.Record // park, schedule: as it is to be, but for its release and origin
	retry  bool              // park, schedule: because closing it failed, or the provider could not say
	cause  string            // retry, give, park of an order that is blocked: why, in a word
	detail string            // retry, give: the same in words
}

// decide says what to do with record r after the outcome o. at is the present by
// the broker's clock. luck, from 0 to 1, is where in its spread a wait lies.
func decide(r orderclose.Record, o orderclose.Outcome, at time.Time, luck float64) decision {
	if o.Verdict == "" && o.Err != nil {
		return decision{action: park, wait: contendedWait, record: r, cause: causeNoVerdict, detail: o.Err.Error()}
	}
	switch o.Verdict {
	case orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed:
		return decision{}
	case orderclose.NotDue:
		return notDue(r, o, at)
	case orderclose.Contended:
		return decision{action: park, wait: contendedWait, record: r, cause: causeContended, detail: "another transaction holds a row"}
	case orderclose.PaymentPending:
		return pending(r, at, luck)
	case orderclose.NotFound:
		return failed(r, causeNotFound, "the database has no such order", luck)
	case orderclose.Failed:
		if o.Err != nil {
			return failed(r, causeFailed, o.Err.Error(), luck)
		}
		return failed(r, causeFailed, "closing it failed", luck)
	}
	return failed(r, causeFailed, fmt.Sprintf("the store's verdict is %q, which means nothing here", o.Verdict), luck)
}

// failed tries an order again later, or gives it up when it had its tries.
func failed(r orderclose.Record, cause, detail string, luck float64) decision {
	d := decision{action: give, cause: cause, detail: detail}
	if r.Attempt < maxRetries {
		d.action, d.retry, d.wait = schedule, true, spread(retryBase<<r.Attempt, luck)
		r.Attempt++
		r.Cause = cause
		d.record = r
	}
	return d
}

// pending asks the provider again later, for a day from the first time that it
// could not say. It uses up no try. The wait is a minute and as long as was waited
// already, which doubles it each time.
func pending(r orderclose.Record, at time.Time, luck float64) decision {
	if r.PendingSince.IsZero() {
		r.PendingSince = at
	}
	waited := max(at.Sub(r.PendingSince), 0)
	if waited >= pendingFor {
		return decision{action: give, cause: causeUnresolved,
			detail: fmt.Sprintf("the payment provider could not say for %v whether it is paid", waited.Round(time.Second))}
	}
	r.Cause = causePending
	wait := spread(min(waited+pendingBase, pendingMax), luck)
	return decision{action: schedule, retry: true, wait: min(wait, pendingFor-waited), record: r,
		cause: causePending, detail: "the payment provider cannot say yet"}
}

// spread makes a wait longer by up to a tenth.
func spread(d time.Duration, luck float64) time.Duration {
	return d + time.Duration(float64(d/spreadPart)*luck)
}

// notDue makes the order wait for its remaining time by the database's clock, which
// decides when an order is due. The order waits in memory, for a minute at most, in two
// cases: if the brokers' clock, which reads at, differs by more than wrongClockSkew from the
// database's; and in every other round if the record was released too early more than
// politeRounds times, because then the clock of its relay may be wrong. All counters
// restart if the due time has changed.
func notDue(r orderclose.Record, o orderclose.Outcome, at time.Time) decision {
	if !orderclose.CeilMilli(o.Due).Equal(orderclose.CeilMilli(r.Order.Due)) { // records have whole milliseconds
		r.Order.Due = o.Due
		r.NotDue, r.Attempt, r.Cause, r.PendingSince, r.Origin = 0, 0, "", time.Time{}, orderclose.Origin{}
	}
	remaining := o.Remaining()
	if remaining <= parkLimit {
		return decision{action: park, wait: remaining, record: r}
	}
	r.NotDue++
	wait := max(remaining, politeness(r.NotDue))
	tooOften := r.NotDue > politeRounds && r.NotDue%2 == 1
	if tooOften || at.Sub(o.At).Abs() > wrongClockSkew {
		return decision{action: park, wait: min(remaining, doubled(r.NotDue-1)), bucket: wait, record: r}
	}
	return decision{action: schedule, wait: wait, record: r}
}

// inMemory turns a wait in a bucket into one in memory. A wait that was computed from the
// clocks is cut short: after a minute they are compared again.
func (d decision) inMemory() decision {
	if d.action != schedule {
		return d
	}
	d.action, d.bucket = park, d.wait
	if d.cause == "" || d.cause == causePending {
		d.wait = min(d.wait, politeMax)
	}
	return d
}

// elsewhere turns a wait in memory, for which there is no room, into one in a bucket.
// It uses up no try, and an order that is nearly due is not later for it.
func (d decision) elsewhere(luck float64) decision {
	d.action = schedule
	switch {
	case d.bucket > 0:
		d.wait = d.bucket
	case d.cause != "":
		d.retry, d.wait = true, spread(blockedWait, luck)
		d.record.Cause = d.cause
	}
	return d
}

// politeness is the least wait of the n-th round for the same due.
func politeness(n int) time.Duration {
	if n <= politeRounds {
		return 0
	}
	return doubled(n - politeRounds)
}

// doubled is politeBase, doubled n times, and politeMax at most.
func doubled(n int) time.Duration { return min(politeBase<<min(n, 10), politeMax) }

// again returns the record for the next round. Its release time is at, by the brokers'
// clock, plus the wait. For a retried record, Origin holds the coordinates of the first
// failed record.
func (d decision) again(at time.Time, here orderclose.Origin) orderclose.Record {
	r := d.record
	r.Release = at.Add(d.wait)
	if d.retry && r.Origin.Topic == "" {
		r.Origin = here
	}
	return r
}
