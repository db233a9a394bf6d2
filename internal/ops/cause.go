package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// rowsAtOnce is how many rows of the schedule outbox one query reads.
	rowsAtOnce = 5000
	// maxRows bounds how many rows of the schedule outbox are kept in memory, at some 20
	// bytes each. An outbox that is drained has a few hundred rows.
	maxRows = 1_000_000
)

// Schedules reads the schedule outbox. store.Store implements it.
type Schedules interface {
	// PendingSchedules returns up to limit rows whose id is greater than afterID, ordered by id.
	PendingSchedules(ctx context.Context, afterID int64, limit int) ([]wire.OutboxRow, error)
}

// Investigator finds out why the pipeline missed the orders that a sweep found. A sweep calls
// Begin once, and Explain of the returned investigation for each page of missed orders. A
// sweep does not depend on it: within a limit of records and of time it finds a cause, and
// beyond that limit the cause is reported as unknown. It implements compensator.Investigator.
// Without a Log or Schedules, that source is skipped.
type Investigator struct {
	Log Log
	// Topics returns the topics in which records of orders wait, and the dead-letter
	// topic. With an error it returns the topics that it knows. Each sweep calls it once,
	// since buckets come and go.
	Topics    func(ctx context.Context) ([]HistoryTopic, error)
	Schedules Schedules
	// Clock returns the time by which release times are judged. It must be set.
	Clock func(ctx context.Context) (time.Time, error)
	// MaxRecords is how many offsets of all topics together one sweep may read. With 0 it reads
	// no record.
	MaxRecords int64
	// MaxTime is how long one sweep may investigate, reading the schedule outbox included. With
	// 0 every cause is reported as unknown.
	MaxTime time.Duration
	Logger  *slog.Logger
}

// Begin implements compensator.Investigator. It reads the schedule outbox and the list of
// topics. A read that fails is no error of Begin: an order without a record is then
// reported as unknown instead of absent.
func (i *Investigator) Begin(ctx context.Context) (compensator.Investigation, error) {
	n := &investigation{Investigator: i, left: i.MaxTime, rows: map[uint64]int64{}, seed: maphash.MakeSeed()}
	n.timed(ctx, func(ctx context.Context) {
		if n.incomplete = n.readRows(ctx); n.incomplete != "" {
			i.Logger.Warn("schedule outbox not read completely, unpublished orders may be missed", "reason", n.incomplete)
		}
		if i.Log == nil {
			n.incomplete = cmp.Or(n.incomplete, "no Kafka is configured")
			return
		}
		topics, err := i.Topics(ctx)
		if err != nil {
			i.Logger.Warn("topics not listed completely, some records may be missed", "err", err)
			n.incomplete = cmp.Or(n.incomplete, err.Error())
		}
		n.index, n.acked = newRecordIndex(i.Log, topics, i.MaxRecords), newAckedIndex(i.Log, topics)
	})
	return n, nil
}

// investigation implements compensator.Investigation. One goroutine uses it.
type investigation struct {
	*Investigator
	index      *recordIndex // nil: no Kafka is configured
	acked      *recordIndex
	left       time.Duration
	seed       maphash.Seed
	rows       map[uint64]int64 // id of the row in the schedule outbox, by hash of the order's id
	incomplete string           // why some rows or topics are missing; empty: all were read
}

// timed calls do with the time that is left, and subtracts how long it took.
func (n *investigation) timed(ctx context.Context, do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, n.left)
	defer cancel()
	began := time.Now()
	do(ctx)
	n.left -= min(time.Since(began), n.left)
}

func (n *investigation) readRows(ctx context.Context) (incomplete string) {
	if n.Schedules == nil {
		return ""
	}
	for after := int64(0); len(n.rows) < maxRows; {
		rows, err := n.Schedules.PendingSchedules(ctx, after, rowsAtOnce)
		if err != nil {
			return "the schedule outbox: " + err.Error()
		}
		for _, r := range rows {
			n.rows[maphash.String(n.seed, r.OrderID)], after = r.ID, r.ID
		}
		if len(rows) < rowsAtOnce {
			return ""
		}
	}
	return fmt.Sprintf("the schedule outbox has more than %d rows", maxRows)
}

// Explain implements compensator.Investigation.
func (n *investigation) Explain(ctx context.Context, missed []orderclose.Order) []compensator.Miss {
	found := make([]evidence, len(missed))
	now := time.Now()
	n.timed(ctx, func(ctx context.Context) {
		if t, err := n.Clock(ctx); err == nil {
			now = t
		}
		if n.index == nil {
			return
		}
		found = n.index.explain(ctx, missed) // with no time left it returns what is known already
		n.findAcked(ctx, missed, found)
		for i := range found {
			if found[i].notRead != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				found[i].notRead = "the time limit was reached"
			}
		}
	})
	misses := make([]compensator.Miss, len(missed))
	for i, o := range missed {
		found[i].row = n.rows[maphash.String(n.seed, o.ID)]
		found[i].notRead = cmp.Or(found[i].notRead, n.incomplete)
		misses[i].Order = o
		misses[i].Cause, misses[i].Where = decide(found[i], now)
		misses[i].Fix = fixOne(misses[i])
	}
	return misses
}

// findAcked searches for acknowledged records of the orders that have no waiting record. It reads what is left of the
// limit. A record that was appended before its order was due does not count: the closer sent it on, because the order
// had been postponed.
func (n *investigation) findAcked(ctx context.Context, missed []orderclose.Order, found []evidence) {
	var absent []orderclose.Order
	var of []*evidence
	for i, o := range missed {
		if e := &found[i]; len(e.matches) == 0 && e.notRead == "" {
			o.CreatedAt = o.Due // no record reaches the close topic earlier
			absent, of = append(absent, o), append(of, e)
		}
	}
	if len(absent) == 0 {
		return
	}
	n.acked.left = n.index.left
	for i, e := range n.acked.explain(ctx, absent) {
		after := func(m match) bool { return m.Leaves >= absent[i].Due.Add(-slack).UnixMilli() }
		if m := slices.IndexFunc(e.matches, after); m >= 0 {
			of[i].acked = &e.matches[m]
		}
	}
	n.index.left = n.acked.left
}
