// Package cause finds out why the pipeline missed the orders that a sweep has
// found. It changes nothing, and a sweep does not rest on it: what it cannot find
// out, within a budget, is unknown.
//
//	cause.go   one sweep's investigation
//	decide.go  why an order was missed, of what was seen of it (pure)
//
// Looking for records is package story's, one pass over each partition for a whole
// sweep.
package cause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"time"

	"orderclose"
	"orderclose/compensator"
	"orderclose/internal/story"
)

const (
	// rowsAtOnce is how many rows of the schedule outbox are read at a time.
	rowsAtOnce = 5000
	// maxRows bounds how many are remembered, at some 20 bytes each. An outbox in
	// order has a few hundred.
	maxRows = 1_000_000
)

// Schedules is the schedule outbox; store.Store has one.
type Schedules interface {
	// Unpublished returns up to limit of its rows beyond an id, in the order of ids.
	Unpublished(ctx context.Context, afterID int64, limit int) ([]orderclose.OutboxRow, error)
}

// Options for an Investigator. What is nil is not asked.
type Options struct {
	Log story.Log
	// Places are those that records of orders wait in, and the dead letters; with an
	// error, those that are known. Each sweep asks, since buckets come and go.
	Places    func(ctx context.Context) ([]story.Place, error)
	Schedules Schedules
	// Clock tells which release times have passed; default time.Now.
	Clock func(ctx context.Context) (time.Time, error)
	// Records is how many records of all places one sweep may look at, and Time for
	// how long, the schedule outbox included; 0 is none.
	Records int64
	Time    time.Duration
	Logger  *slog.Logger // default: discard
}

// Investigator is a compensator.Investigator. Make it with New.
type Investigator struct{ o Options }

// New returns an Investigator.
func New(o Options) *Investigator {
	if o.Clock == nil {
		o.Clock = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Investigator{o}
}

// Begin implements compensator.Investigator: it reads the schedule outbox and asks
// which topics there are. That it could not is no error: then what has no record is unknown, rather than absent.
func (i *Investigator) Begin(ctx context.Context) (compensator.Investigation, error) {
	n := &investigation{o: i.o, left: i.o.Time, rows: map[uint64]int64{}, seed: maphash.MakeSeed()}
	n.timed(ctx, func(ctx context.Context) { n.unread = n.readRows(ctx) })
	if n.unread != "" {
		i.o.Logger.Warn("not all orders that wait in the schedule outbox will be known as unpublished", "why", n.unread)
	}
	if i.o.Log == nil {
		return n, nil
	}
	n.timed(ctx, func(ctx context.Context) {
		places, err := i.o.Places(ctx)
		if err != nil {
			i.o.Logger.Warn("not every topic will be looked at for records", "err", err)
			n.unread = cmp.Or(n.unread, err.Error())
		}
		n.index = story.NewIndex(i.o.Log, places, i.o.Records)
	})
	return n, nil
}

// investigation is a compensator.Investigation.
type investigation struct {
	o      Options
	index  *story.Index // nil: there is no Kafka
	left   time.Duration
	seed   maphash.Seed
	rows   map[uint64]int64 // of the schedule outbox, by hash of the order's id
	unread string           // why some rows or topics are not known; empty: all are
}

// timed does something for as long as there is time left.
func (n *investigation) timed(ctx context.Context, do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, n.left)
	defer cancel()
	began := time.Now()
	do(ctx)
	n.left -= min(time.Since(began), n.left)
}

func (n *investigation) readRows(ctx context.Context) (unread string) {
	if n.o.Schedules == nil {
		return ""
	}
	for after := int64(0); len(n.rows) < maxRows; {
		rows, err := n.o.Schedules.Unpublished(ctx, after, rowsAtOnce)
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
	found := make([]story.Sights, len(missed))
	now := time.Now()
	n.timed(ctx, func(ctx context.Context) {
		if t, err := n.o.Clock(ctx); err == nil {
			now = t
		}
		if n.index == nil {
			for i := range found {
				found[i].Unseen = "there is no Kafka to ask"
			}
			return
		}
		found = n.index.Find(ctx, missed) // without time left, what is known already
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			spent(found)
		}
	})
	misses := make([]compensator.Miss, len(missed))
	for i, o := range missed {
		e := evidence{n.rows[maphash.String(n.seed, o.ID)], found[i].Found, found[i].Unseen}
		if e.unseen == "" {
			e.unseen = n.unread
		}
		misses[i].Order = o
		misses[i].Cause, misses[i].Where = decide(e, now)
		misses[i].Mend = mendOne(misses[i])
	}
	return misses
}

// spent says what ended the look, rather than how it did.
func spent(found []story.Sights) {
	for i := range found {
		if found[i].Unseen != "" {
			found[i].Unseen = "the time was spent"
		}
	}
}
