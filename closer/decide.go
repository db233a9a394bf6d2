package closer

import (
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
	// politeRounds is how often the same due may come too soon before each further
	// round waits longer than it must: two clocks that disagree should not keep a
	// record running in circles.
	politeRounds = 2
	politeBase   = 5 * time.Second
	politeMax    = time.Minute
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
	wait   time.Duration // park, schedule: how long from now
	notDue int           // schedule: how often it came too soon for this due, now included
	cause  string        // give: the cause of the dead letter
	detail string        // give: the cause in words
}

// decide says what to do with record r after the outcome o.
func decide(r orderclose.Record, o orderclose.Outcome) decision {
	switch o.Verdict {
	case orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed:
		return decision{}
	case orderclose.NotDue:
		return notDue(r, o)
	case orderclose.Contended:
		return decision{action: park, wait: contendedWait}
	case orderclose.NotFound:
		return decision{action: give, cause: string(o.Verdict), detail: "the database has no such order"}
	}
	d := decision{action: give, cause: string(o.Verdict), detail: "closing it failed"}
	if o.Err != nil {
		d.detail = o.Err.Error()
	}
	return d
}

// notDue waits for what remains by the database's clock, which is the one that
// decides. The count of rounds begins anew when the due time has changed.
func notDue(r orderclose.Record, o orderclose.Outcome) decision {
	remaining := o.Remaining()
	if remaining <= parkLimit {
		return decision{action: park, wait: remaining}
	}
	rounds := 1
	if o.Due.Equal(r.Order.Due) {
		rounds = r.NotDue + 1
	}
	return decision{action: schedule, wait: max(remaining, politeness(rounds)), notDue: rounds}
}

// politeness is the least wait of the n-th round for the same due.
func politeness(n int) time.Duration {
	if n <= politeRounds {
		return 0
	}
	return min(politeBase<<min(n-politeRounds, 10), politeMax)
}

// again returns the record for a further round: it is released after the wait
// from now on, by the broker's clock as far as it can be told from here, which is
// its append time and how long ago it was read.
func again(r orderclose.Record, m orderclose.Message, sinceRead time.Duration, o orderclose.Outcome, d decision) orderclose.Record {
	r.Order.Due = o.Due
	r.Release = m.Appended.Add(sinceRead + d.wait)
	r.NotDue = d.notDue
	return r
}
