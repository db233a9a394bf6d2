package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/pipeline"
)

// The judge of reminders demands each reminder in whose time a keeper must have worked for longer than reminderRound. It knows when
// processes with a compensator were started, and when they were stopped or killed. When a keeper ends, docs/design.md says how long the
// others take until one of them works.
const (
	// reminderRound is longer than the time between two rounds, half of the shortest reminder of chaosDelays.
	reminderRound = 1100 * time.Millisecond
	// keeperStart is longer than a process needs that finds the lock free.
	keeperStart = 2 * time.Second
	// keeperRetry is the time between two attempts to take the lock.
	keeperRetry = 3 * time.Second
	// redisTime is longer than an attempt takes if Redis does not answer.
	redisTime = 4 * time.Second
	// stalledTime is how long the database may be busy after a fault: a statement may stall for 15 s, and others wait for it.
	stalledTime = 30 * time.Second
)

// span is a time of a world.
type span struct{ from, to time.Time }

// tenure is the time in which a process may be the keeper: from its start until it is stopped or killed. to is zero while it runs.
type tenure span

// losesReminders reports whether any reminder of the world may be missing: no compensator runs, a clock is wrong, the rules change, or the
// shop has a store in Go.
func (p *plan) losesReminders() bool {
	return !p.Sweeps || p.closesInGo() || p.has("database-clock", "checkout-clock", "reload")
}

// unattended returns the times in which perhaps nobody writes reminders, by their begin: the database or a service that closes fails, or no process
// may know yet that it is the keeper, as while the lock moves between Redis and the database. A pause keeps also reminders away whose time began in it.
func (w *chaosWorld) unattended() (all []span) {
	for _, e := range w.plan.Events {
		from := w.began.Add(e.At)
		switch e.Kind {
		case "database":
			all = append(all, span{from, from.Add(e.For + stalledTime)})
		case "redis", "pause", "cut": // the holder of the lock may be the one, and works at most until the lock may have ended; then another one has it
			all = append(all, span{from, from.Add(e.For + lock.DefaultExpiry + keeperRetry + redisTime)})
		case "service": // turns that fail give the lock back, also the only process that may hold it; the last call may hang
			all = append(all, span{from, from.Add(e.For + bisect.CallTimeout + keeperRetry + keeperStart)})
		case "pause-closes":
			all = append(all, span{from, from.Add(e.For + longestReminder)})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ended := range w.tenures {
		if ended.to.IsZero() {
			continue
		}
		until := time.Now()
		for _, other := range w.tenures {
			works := w.plan.takesOver(ended, other)
			if other != ended && (other.to.IsZero() || other.to.After(works)) && works.Before(until) {
				until = works
			}
		}
		all = append(all, span{ended.to, until})
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	return all
}

// longestReminder is the longest time from one reminder of an order to the next, or to the deadline.
const longestReminder = 8 * time.Second

// takesOver returns when another process works as the keeper, if a process has ended that may have been it. Only a process that is stopped,
// and reaches Redis, gives the lock back.
func (p *plan) takesOver(ended, other *tenure) time.Time {
	free, attempts := ended.to, keeperRetry+keeperStart
	if p.has("kill", "cut", "pause", "half-open", "reset", "slow", "redis") {
		free, attempts = free.Add(lock.DefaultExpiry), attempts+redisTime
	}
	if other.from.Before(free) {
		return free.Add(attempts)
	}
	return other.from.Add(attempts - keeperRetry)
}

// attended reports whether somebody must have written reminders for longer than a round between two times.
func attended(from, to time.Time, unattended []span) bool {
	for _, s := range unattended {
		if !s.from.Before(to) || s.from.Sub(from) > reminderRound {
			break
		}
		if s.to.After(from) {
			from = s.to
		}
	}
	return to.Sub(from) > reminderRound
}

// checkReminders checks that each order that nobody moved, and nobody paid or cancelled before its due time, has each
// reminder of its rule, once. It returns the number of these reminders.
func (w *chaosWorld) checkReminders() (reminders int) {
	if w.plan.losesReminders() {
		return 0
	}
	unattended := w.unattended()
	for _, e := range w.plan.Events {
		i := chaosDelays.RuleOf(e.What, nil)
		ends := (e.Then == paid || e.Then == cancelled) && e.For >= chaosDelays.ByCategory[e.What] // after the due time
		if e.Kind != "order" || i == orderclose.NoRule || e.Then != "" && !ends {
			continue
		}
		id, rule := fmt.Sprintf("order-%02d", e.N), chaosDelays.Rules[i]
		deadline := time.UnixMilli(w.number("SELECT expire_at FROM orders WHERE id = '" + id + "'")).Add(-rule.Grace)
		for n, before := range rule.Remind {
			next := deadline
			if n+1 < len(rule.Remind) {
				next = deadline.Add(-rule.Remind[n+1])
			}
			if !attended(deadline.Add(-before), next, unattended) {
				continue
			}
			reminders++
			n := w.number(fmt.Sprintf("SELECT COUNT(*) FROM order_reminders WHERE order_id = '%s' AND before_ms = %d", id, before.Milliseconds()))
			if n != 1 {
				w.violation("broken", "%s has %d reminders of %v before its deadline", id, n, before)
			}
		}
	}
	return reminders
}

// keeps notes that a process with these roles may be the keeper from now on; nil if it has no compensator.
func (w *chaosWorld) keeps(roles []pipeline.Role) *tenure {
	if !slices.Contains(roles, pipeline.Compensator) {
		return nil
	}
	t := &tenure{from: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenures = append(w.tenures, t)
	return t
}

// end notes that the process is stopped or killed now.
func (t *tenure) end(w *chaosWorld) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t != nil && t.to.IsZero() {
		t.to = time.Now()
	}
}
