package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/ops"
)

// verdictsAtOnce is how many orders one query of Verdicts reads.
const verdictsAtOnce = 500

// Verdicts returns what closing the orders would do now, in the order of the ids, and changes nothing: orderclose.Closed stands for an order
// that is unpaid and due, whether it is paused or not; NotDue for an unpaid one whose Due has not come. It reads by key without a lock.
// The error wraps ErrNoDatabase or ErrClosedElsewhere, or names an id that no order can have.
func (a *Admin) Verdicts(ctx context.Context, ids ...string) (outcomes []orderclose.Outcome, err error) {
	db, err := a.p.ClosingDatabase()
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(ids, verdictsAtOnce) {
		requests := make([]orderclose.CloseRequest, len(part))
		for i, id := range part {
			if err := orderclose.ValidateID(id); err != nil {
				return nil, err
			}
			requests[i].OrderID = id
		}
		found, err := db.PreviewClose(ctx, "", requests)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, found...)
	}
	return outcomes, nil
}

// History is what the database and Kafka know about an order:
//
//   - Now, a Sentence: where the order is, in one sentence
//   - Timeline, a list of TimelineEvent: what happened to it, sorted by time
//   - Database: its rows. Order is nil if the database has no such order, or if a Store of the program has the orders;
//     Receipt is nil if it was not closed; the others are lists:
//     Items, Ledger, LatePayments, PendingEvents and PendingSchedules. Database is nil if it was not asked
//   - Topics: for each topic that it may pass, Topic, Partition, and the Records that were found there
//   - Failure: why the order cannot be closed; nil if that is not known
//   - NotRead, a list of texts: what could not be searched, and why
//   - ID, and At by the clock of this machine
//
// Known reports whether anything has the order, and Skipped how many records were not searched. In JSON it is the output of
// orderclose order ID -o json.
type History = ops.History

// Sentence is a sentence in English. String returns it; in JSON it is a text.
type Sentence = ops.Sentence

// TimelineEvent is something that happened to an order, or will happen: At, a time; Where, the text database or topic/partition/offset; and
// What, a Sentence.
type TimelineEvent = ops.Event

// History searches for an order in the database, and in Kafka for at most 20 s and 100,000 records of each topic. The App may have
// one of the two servers alone. Two callers search at once, and others wait for 5 s. If a part could not be searched,
// History.NotRead says so. The error wraps ErrNotFound if nothing has the order, is ErrBusy, or says what could not be searched.
func (a *Admin) History(ctx context.Context, id string) (History, error) {
	if err := orderclose.ValidateID(id); err != nil {
		return History{}, err
	}
	h, err := a.histories.Of(ctx, a.p, id)
	switch {
	case err != nil:
		return History{}, err
	case h.Known():
		return h, nil
	case len(h.NotRead) > 0:
		return h, errors.New("the order was not found in what could be searched: " + strings.Join(h.NotRead, "; "))
	}
	return h, fmt.Errorf("%w: order %q, with %d records not searched", ErrNotFound, id, h.Skipped())
}

// Overdue are the unpaid orders that have been due for longer than 5 s.
type Overdue struct {
	At     time.Time          // by the database's clock
	Orders []orderclose.Order // that no pause explains, by due time
	Paused []orderclose.Order // that wait because somebody has paused the pipeline or their category, by due time
	Old    []orderclose.Order // up to 100 that stay open because they were due long before the database was migrated
	More   bool               // the database has more than the 1,000 that were read: the oldest 500 and the newest 500
}

// Overdue lists the overdue orders in the database. Those that the mapping excludes are not among them. A few are normal: orders that
// are retried, and orders whose payment is pending. The error wraps ErrNoDatabase or ErrClosedElsewhere.
func (a *Admin) Overdue(ctx context.Context) (Overdue, error) {
	if _, err := a.p.ClosingDatabase(); err != nil {
		return Overdue{}, err
	}
	l, err := backlog.ListOverdue(ctx, a.p.Store, ops.OverdueGrace)
	return Overdue(l), err
}
