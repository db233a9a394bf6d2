// Package reminders writes the reminders of unpaid orders. The compensator that holds the lock does so, beside its loop.
package reminders

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	// remindEvery is the longest time between two rounds of reminders, and remindOften the shortest.
	remindEvery, remindOften = 10 * time.Second, 500 * time.Millisecond
	// remindPage is how many orders one query of a round reads.
	remindPage = 500
	// remindTries is how many failed writes end a round. The database may refuse the reminder of one order. Then the page of that order
	// is halved up to nine times, and up to ten writes fail.
	remindTries = 30
	// roundTime is how long a round may take. The next one goes on with the reminders that it has not written.
	roundTime = 3 * time.Minute
)

// New returns the task that writes the reminders of unpaid orders in the database, by the rules now in effect. report is called after
// each round, and while another process does the task. If two processes do it, the store lets one of them write a reminder.
func New(db *store.Store, delays func() orderclose.Delays, report func(late []time.Duration, complete time.Time), logger *slog.Logger) compensator.Task {
	r := &writer{store: db, delays: delays, report: report, logger: retry.LimitLogs(logger)}
	return compensator.Task{Do: r.do, Idle: func() { r.report(nil, time.Time{}) }}
}

// Wanted reports whether a rule asks for reminders.
func Wanted(rules []orderclose.Rule) bool {
	offsets, _ := remindOffsets(rules)
	return len(offsets) > 0
}

// writer writes the reminders of unpaid orders, round by round.
type writer struct {
	store interface {
		Now(ctx context.Context) (time.Time, error)
		DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
		Remind(ctx context.Context, reminders []store.Reminder) (late []time.Duration, locked int, err error)
		ForgetReminders(ctx context.Context, now time.Time) error
	}
	delays func() orderclose.Delays
	report func(late []time.Duration, complete time.Time) // called after each round
	logger *slog.Logger

	done     time.Time       // each reminder up to this time of the database's clock is written; zero: not known
	complete time.Time       // the same by the local clock; before the first complete round its begin; zero: no rule asks for reminders
	offsets  []time.Duration // those of the last round, for which done holds
}

// do writes a round of reminders, and returns the time until the next one. Without a rule that asks for some, it does not use the database.
func (r *writer) do(ctx context.Context) time.Duration {
	delays := r.delays()
	offsets, wait := remindOffsets(delays.Rules)
	var result written
	if len(offsets) == 0 {
		r.done, r.complete = time.Time{}, time.Time{}
	} else {
		if !slices.Equal(offsets, r.offsets) { // a round of other rules says nothing of these
			r.done = time.Time{}
		}
		r.complete, r.offsets = cmp.Or(r.complete, time.Now()), offsets
		limited, cancel := context.WithTimeout(ctx, roundTime) //mutant:endless-reminders
		defer cancel()
		if err := r.round(limited, delays, offsets, &result); err != nil && ctx.Err() == nil {
			r.logger.Warn("writing reminders failed, will retry", "err", err)
		}
	}
	r.report(result.late, r.complete)
	return wait
}

// round writes the reminders whose time has come since the last complete round. For each offset it reads the orders
// that were further from their due time then, and are not now. The first round reads all orders that are no further.
func (r *writer) round(ctx context.Context, delays orderclose.Delays, offsets []time.Duration, result *written) error {
	local := time.Now()
	now, err := r.store.Now(ctx)
	if err != nil {
		return err
	}
	for _, offset := range offsets {
		from, to := now, now.Add(offset)
		if since := r.done.Add(offset); since.After(from) {
			from = since //mutant:reminders-between-missing
		}
		for after, more := (orderclose.Order{}), true; more; {
			page, err := r.store.DueBetween(ctx, from, to, after, remindPage)
			if err != nil {
				return err
			}
			if more = len(page) == remindPage; more {
				after = page[len(page)-1]
			}
			var due []store.Reminder
			for _, o := range page {
				if reminder, ok := reminderOf(delays, o, now); ok && o.Due.Sub(reminder.Deadline)+reminder.Before == offset {
					due = append(due, reminder)
				}
			}
			r.write(ctx, due, result)
			if result.refused >= remindTries {
				return result.err
			}
		}
	}
	if result.err != nil {
		return result.err
	}
	if result.locked == 0 { // else the next round tries those orders again
		r.done, r.complete = now, local
	}
	return r.store.ForgetReminders(ctx, now)
}

// written is what a round has written, and what it could not write.
type written struct {
	late    []time.Duration
	locked  int
	refused int   // how many calls of Remind have failed; remindTries ends the round
	err     error // of the last of them
}

// write writes reminders. If the database refuses them, write tries each half of them: one order keeps no other from its reminder.
func (r *writer) write(ctx context.Context, due []store.Reminder, result *written) {
	late, locked, err := r.store.Remind(ctx, due)
	result.late, result.locked = append(result.late, late...), result.locked+locked
	if err == nil {
		return
	}
	if result.refused, result.err = result.refused+1, err; errors.Is(err, orderclose.ErrUnavailable) || ctx.Err() != nil {
		result.refused = remindTries
	}
	if len(due) < 2 {
		return
	}
	for half := range slices.Chunk(due, (len(due)+1)/2) {
		if result.refused < remindTries {
			r.write(ctx, half, result) //mutant:one-keeps-reminders
		}
	}
}

// remindOffsets returns how long before their due times orders are reminded, and the time between two
// rounds: short enough for the shortest reminder. Pure.
func remindOffsets(rules []orderclose.Rule) (offsets []time.Duration, wait time.Duration) {
	wait = remindEvery
	for _, rule := range rules {
		for _, before := range rule.Remind {
			offsets, wait = append(offsets, rule.Grace+before), min(wait, max(before/2, remindOften))
		}
	}
	slices.Sort(offsets)
	return slices.Compact(offsets), wait
}

// reminderOf returns the reminder of an order whose time was last up to now, by the rules now in effect. After a time
// without compensators, the earlier reminders of the order are not written any more. An order that
// was created after the reminder's time, or whose deadline has passed, has none. Pure.
func reminderOf(delays orderclose.Delays, o orderclose.Order, now time.Time) (r store.Reminder, ok bool) {
	i := delays.RuleOf(o.Category, o.Attributes)
	if i == orderclose.NoRule {
		return r, false
	}
	rule := delays.Rules[i]
	r = store.Reminder{Order: o, Deadline: o.Due.Add(-rule.Grace)}
	for _, before := range rule.Remind { // the longest first
		if at := r.Deadline.Add(-before); !at.After(now) && !at.Before(o.CreatedAt) {
			r.Before, ok = before, true
		}
	}
	return r, ok && now.Before(r.Deadline)
}
