// Package works has the tasks of compensators beside the loop. The holder of their lock counts overdue orders and late payments (CountOrders),
// and writes reminders. A recheck records late payments by a LateStore. A sweeper deletes old rows of outboxes (DropOutbox).
package works

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	countAtRest   = 30 * time.Second // between two counts while no order is overdue
	countInterval = 5 * time.Second  // between two counts while some are
	lateInterval  = time.Minute      // between two counts of payments that came late
	countTimeout  = 30 * time.Second // of one count
	countShare    = 10               // a count that took long is followed by a pause of this many times its duration
	countRarest   = 45 * time.Second // the longest such pause: an alert compares the number with that of a minute ago
	countHolds    = time.Minute      // how long a count stands for those that failed since
)

// CountOrders returns the work that counts the overdue orders and the late payments in the database. listed returns the categories of topics.yaml.
// overdue and late get what was counted. The zero value, and nil, say that it is not known, or that another process counts.
func CountOrders(db *store.Store, listed func() map[string]time.Duration, overdue func(backlog.OverdueOrders), late func(*store.LateSummary),
	logger *slog.Logger) compensator.Work {
	var payments *store.LateSummary // nil: not known
	var paymentsAt time.Time
	count := func(ctx context.Context) (backlog.OverdueOrders, error) {
		if payments == nil || time.Since(paymentsAt) >= lateInterval {
			if sum, err := db.CountLate(ctx); err == nil {
				payments, paymentsAt = &sum, time.Now()
			} else {
				payments = nil
				logger.Warn("late payments cannot be counted, will retry", "err", err)
			}
		}
		list, err := backlog.ListOverdue(ctx, db, compensator.Grace)
		return list.Count(listed()), err
	}
	report := func(o backlog.OverdueOrders) {
		if o.At.IsZero() {
			payments = nil
		}
		overdue(o)
		late(payments)
	}
	c := &orderCounter{count: count, report: report, logger: logger}
	return compensator.Work{Do: c.once, Idle: c.idle}
}

// orderCounter counts overdue orders.
type orderCounter struct {
	count   func(context.Context) (backlog.OverdueOrders, error)
	report  func(backlog.OverdueOrders) // the zero value: they are not known, or another process counts
	logger  *slog.Logger
	counted time.Time // when a count last succeeded
}

// once counts once, and returns the time until the next count. After a failed count the last one holds for a minute.
func (c *orderCounter) once(ctx context.Context) (next time.Duration) {
	limited, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	began := time.Now()
	o, err := c.count(limited)
	rest := min(countShare*time.Since(began), countRarest)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.counted = time.Now()
		if c.report(o); o.Orders+o.Paused > 0 {
			return max(countInterval, rest)
		}
	default:
		c.logger.Warn("overdue orders cannot be counted, will retry", "err", err)
		if time.Since(c.counted) > countHolds {
			c.idle()
		}
	}
	return max(countAtRest, rest)
}

func (c *orderCounter) idle() { c.report(backlog.OverdueOrders{}) }

// ClosedStore is a store that knows which orders were closed, and records their late payments.
type ClosedStore interface {
	compensator.ClosedStore
	RecordLate(ctx context.Context, payments []store.LatePayment) (int, error)
}

// LateStore is the payment.Store of a recheck. It closes no order. An order that is paid gets a late payment.
type LateStore struct {
	ClosedStore
	Logger *slog.Logger
}

// PreviewClose implements payment.Store: the provider is asked about all of the orders.
func (LateStore) PreviewClose(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.Closed), nil
}

// CloseOrders implements payment.Store: the orders are closed already.
func (LateStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.AlreadyClosed), nil
}

// PayOrders implements payment.Store: it records late payments, and marks no order as paid.
func (s LateStore) PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes := outcomesOf(requests, orderclose.AlreadyClosed)
	for i, r := range requests { //mutant:recheck-unrecorded
		recorded, err := s.RecordLate(ctx, []store.LatePayment{{OrderID: r.OrderID, Source: store.SourceRecheck}})
		switch {
		case errors.Is(err, orderclose.ErrUnavailable):
			return nil, err
		case err != nil: // the next step asks again, and the others go on
			s.Logger.Error("late payment could not be recorded, the order is asked about again", "err", err)
			outcomes[i].Verdict = orderclose.PaymentPending
		case recorded > 0:
			outcomes[i].Verdict = orderclose.AlreadyPaid
		}
	}
	return outcomes, nil
}

func outcomesOf(requests []orderclose.CloseRequest, verdict orderclose.Verdict) []orderclose.Outcome {
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: verdict}
	}
	return outcomes
}

const (
	// keepOutbox is how long a sweeper keeps rows of the outboxes, which nobody publishes: as long as the topic of the
	// events keeps an event. A program of the shop may read and delete them earlier.
	keepOutbox = 7 * 24 * time.Hour
	// dropInterval is the interval between two searches for older rows.
	dropInterval = time.Minute
)

// DropOutbox deletes the rows of outboxes that are older than keepOutbox, until ctx ends.
func DropOutbox(ctx context.Context, db *store.Store, boxes []wire.Outbox, logger *slog.Logger) {
	for retry.Sleep(ctx, dropInterval) {
		for _, box := range boxes {
			dropped, err := db.DropOutbox(ctx, box, keepOutbox)
			if err != nil && ctx.Err() == nil {
				logger.Warn("old rows of an outbox cannot be deleted, will retry", "outbox", box, "err", err)
			}
			if dropped > 0 {
				logger.Info("deleted rows of an outbox that nobody has read", "outbox", box, "rows", dropped, "older_than", keepOutbox)
			}
		}
	}
}

const (
	// remindEvery is the longest time between two rounds of reminders, and remindOften the shortest.
	remindEvery, remindOften = 10 * time.Second, 500 * time.Millisecond
	// remindPage is how many orders one query of a round reads.
	remindPage = 500
	// remindTries is how many failed writes end a round. The database may refuse the reminder of one order. Then the page of that order
	// is halved up to nine times, and up to ten writes fail.
	remindTries = 30
)

// Reminders returns the work that writes the reminders of unpaid orders in the database, by the rules now in effect. report is called after
// each round, and while another process does the work. If two processes do it, the store lets one of them write a reminder.
func Reminders(db *store.Store, delays func() orderclose.Delays, report func(late []time.Duration, complete time.Time), logger *slog.Logger) compensator.Work {
	r := &reminders{store: db, delays: delays, report: report, logger: retry.LimitLogs(logger)}
	return compensator.Work{Do: r.do, Idle: func() { r.report(nil, time.Time{}) }}
}

// Remind reports whether a rule asks for reminders.
func Remind(rules []orderclose.Rule) bool {
	offsets, _ := remindOffsets(rules)
	return len(offsets) > 0
}

// reminders writes the reminders of unpaid orders, round by round.
type reminders struct {
	store interface {
		Now(ctx context.Context) (time.Time, error)
		DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
		Remind(ctx context.Context, reminders []store.Reminder) (late []time.Duration, locked int, err error)
		ForgetReminders(ctx context.Context, now time.Time) error
	}
	delays func() orderclose.Delays
	report func(late []time.Duration, complete time.Time) // called after each round
	logger *slog.Logger

	done    time.Time       // each reminder up to this time of the database's clock is written; zero: not known
	began   time.Time       // when the first round began; zero: no rule asks for reminders
	offsets []time.Duration // those of the last round, for which done holds
}

// do writes a round of reminders, and returns the time until the next one. Without a rule that asks for some, it does not use the database.
func (r *reminders) do(ctx context.Context) time.Duration {
	delays := r.delays()
	offsets, wait := remindOffsets(delays.Rules)
	var result written
	if len(offsets) == 0 {
		r.done, r.began = time.Time{}, time.Time{}
	} else {
		if !slices.Equal(offsets, r.offsets) { // a round of other rules says nothing of these
			r.done = time.Time{}
		}
		r.began, r.offsets = cmp.Or(r.began, time.Now()), offsets
		if err := r.round(ctx, delays, offsets, &result); err != nil && ctx.Err() == nil {
			r.logger.Warn("writing reminders failed, will retry", "err", err)
		}
	}
	r.report(result.late, cmp.Or(r.done, r.began))
	return wait
}

// round writes the reminders whose time has come since the last complete round. For each offset it reads the orders
// that were further from their due time then, and are not now. The first round reads all orders that are no further.
func (r *reminders) round(ctx context.Context, delays orderclose.Delays, offsets []time.Duration, result *written) error {
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
		r.done = now
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
func (r *reminders) write(ctx context.Context, due []store.Reminder, result *written) {
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
