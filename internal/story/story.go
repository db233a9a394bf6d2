// Package story tells all that happened to one order: what the database has of
// it, which records of it lie in which topics, and where it is now. It changes
// nothing, and needs no part of the pipeline to be running.
//
//	story.go     the story, and in a sentence where the order is (pure)
//	timeline.go  what happened, in the order of time (pure)
//	look.go      looking for its records, within a budget
//	index.go     looking for what waits of many orders, in one pass
package story

import (
	"fmt"
	"time"

	"orderclose/internal/deadletters"
	"orderclose/internal/store"
)

// Story is what is known of an order.
type Story struct {
	ID string    `json:"order_id"`
	At time.Time `json:"at"` // by this machine's clock
	// Now says in a sentence where the order is.
	Now      string       `json:"now"`
	Database *store.Story `json:"database"` // nil: not looked at
	Places   []Place      `json:"topics"`   // that were looked through
	Timeline []Event      `json:"timeline"`
	// Unseen says what could not be looked at, and why.
	Unseen []string `json:"unseen"`
}

// Tell puts a story together. Database is nil, and there are no places, where those
// were not asked.
func Tell(id string, at time.Time, database *store.Story, places []Place) Story {
	s := Story{ID: id, At: at.UTC(), Database: database, Places: append([]Place{}, places...), Unseen: []string{}}
	for _, p := range places {
		if p.Problem != "" {
			s.Unseen = append(s.Unseen, fmt.Sprintf("%s: %s", p.Topic, p.Problem))
		}
	}
	s.Timeline = timeline(database, places)
	s.Now = s.now()
	return s
}

// Known says whether anybody knows the order.
func (s Story) Known() bool {
	if s.Database != nil && s.Database.Known() {
		return true
	}
	for _, p := range s.Places {
		if len(p.Records) > 0 {
			return true
		}
	}
	return false
}

// Skipped says how many offsets were not looked at because the budget was spent.
func (s Story) Skipped() (offsets int64) {
	for _, p := range s.Places {
		offsets += p.Skipped
	}
	return offsets
}

// now says where the order is: what the database has decided, and if it has not,
// what is to come.
func (s Story) now() string {
	record := s.record()
	if s.Database == nil {
		return record
	}
	o := s.Database.Order
	switch {
	case o == nil && !s.Known():
		return "nobody knows it"
	case o == nil:
		return "the database has no such order; " + record
	case o.Status == store.Closed && s.Database.Receipt != nil:
		r := s.Database.Receipt
		return fmt.Sprintf("closed by %s, %s after it was due", r.Path, time.Duration(r.LatenessMS)*time.Millisecond)
	case o.Status != store.Unpaid:
		return o.State
	case !o.Due.After(s.Database.At):
		return fmt.Sprintf("unpaid, and overdue by %s; %s; the sweep closes it in any case, or now: orderclose compensate --once",
			s.Database.At.Sub(o.Due).Round(time.Millisecond), record)
	}
	return fmt.Sprintf("unpaid, due in %s; %s", o.Due.Sub(s.Database.At).Round(time.Second), record)
}

// record says where its record is: the one that waits, else the dead letter that
// is pending.
func (s Story) record() string {
	looked, dead := false, deadletters.Place{Offset: -1}
	for _, p := range s.Places {
		looked = looked || p.Problem == "" && p.waits()
		for _, r := range p.Records {
			switch {
			case r.Waits && r.Leaves != nil:
				return fmt.Sprintf("its record waits in %s/%d at %d and leaves at %s", p.Topic, p.Partition, r.Offset, clock(*r.Leaves))
			case r.Waits:
				return fmt.Sprintf("its record is in %s/%d at %d, and nobody has committed it yet", p.Topic, p.Partition, r.Offset)
			case r.Dead != nil && r.Settles == nil && !settled(p, r):
				dead = deadletters.Place{Partition: p.Partition, Offset: r.Offset}
			}
		}
	}
	switch {
	case dead.Offset >= 0:
		return fmt.Sprintf("its record is a dead letter: orderclose dlq show %v", dead)
	case !looked:
		return "where its record is was not looked at"
	case s.Skipped() > 0:
		return fmt.Sprintf("no record of it waits in what was looked at; %d offsets were not, look further with --budget", s.Skipped())
	}
	return "no record of it waits"
}

// settled says whether there is a mark for a dead letter among the records of its
// partition.
func settled(p Place, dead Record) bool {
	for _, r := range p.Records {
		if r.Settles != nil && r.Settles.Partition == p.Partition && r.Settles.Offset == dead.Offset {
			return true
		}
	}
	return false
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
