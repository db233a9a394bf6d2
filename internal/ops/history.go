package ops

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
)

// History is what is known about an order.
type History struct {
	ID string    `json:"order_id"`
	At time.Time `json:"at"` // by the clock of this machine
	// Now says in one sentence where the order is.
	Now      Sentence            `json:"now"`
	Database *store.OrderHistory `json:"database"` // nil: the database was not asked
	Topics   []HistoryTopic      `json:"topics"`   // the topics that were searched
	Timeline []Event             `json:"timeline"`
	// Failure is why the order cannot be closed; nil: that is not known.
	Failure *compensator.Failure `json:"failure,omitempty"`
	// NotRead lists what could not be searched, with the reasons.
	NotRead []string `json:"unseen"`

	closes Closing
}

// Closing says how orders are closed.
type Closing struct {
	Pays      bool // the payment provider is asked before a close
	Elsewhere bool // by a service or a Store of the program, which has the orders
}

// NewHistory returns the history of an order. database is nil if the database was not asked, and
// topics is empty if Kafka was not asked. failure is nil if none is known.
func NewHistory(id string, at time.Time, database *store.OrderHistory, topics []HistoryTopic, failure *compensator.Failure, closes Closing) History {
	s := History{ID: id, At: at.UTC(), Database: database, Failure: failure, Topics: append([]HistoryTopic{}, topics...), NotRead: []string{}, closes: closes}
	for _, p := range topics {
		if p.Problem != "" {
			s.NotRead = append(s.NotRead, fmt.Sprintf("%s: %s", p.Topic, p.Problem))
		}
	}
	if database != nil {
		s.NotRead = append(s.NotRead, database.More...)
	}
	s.Timeline = timeline(database, topics)
	s.Now = s.now()
	return s
}

// Known reports whether the database or a searched topic has the order.
func (s History) Known() bool {
	return s.Database != nil && s.Database.Known() ||
		slices.ContainsFunc(s.Topics, func(p HistoryTopic) bool { return len(p.Records) > 0 })
}

// Skipped returns how many offsets were not searched because the budget was used up.
func (s History) Skipped() (offsets int64) {
	for _, p := range s.Topics {
		offsets += p.Skipped
	}
	return offsets
}

// now says where the order is: the decision of the database, or else what will happen next.
func (s History) now() Sentence {
	record, acked := s.record()
	if s.Database == nil {
		return record
	}
	o := s.Database.Order
	switch {
	case o == nil && !s.Known():
		return Sentence{say("unknown: found neither in the database nor in Kafka")}
	case o == nil && s.closes.Elsewhere:
		return append(Sentence{say("the service or the Store of the program that closes the orders knows its status")}, record...)
	case o == nil:
		return append(Sentence{say("the database has no such order")}, record...)
	case o.Status == store.Closed && s.Database.Receipt != nil:
		r := s.Database.Receipt
		return Sentence{say("closed by %s, %s after it was due", r.Path, time.Duration(r.LatenessMS)*time.Millisecond)}
	case !unpaid(o):
		return Sentence{say("%s", mapping.InWords(o.State, o.Meaning))}
	case orderclose.IsNever(o.Due):
		return append(Sentence{say("unpaid, and never closed: its due time means never")}, record...)
	case !o.Due.After(s.Database.At):
		now := append(Sentence{say("unpaid, and overdue by %s", s.Database.At.Sub(o.Due).Round(time.Millisecond))}, record...)
		if pending := s.pending(); pending != nil {
			return append(now, pending...)
		}
		if acked {
			now = append(now, say("it has not closed the order, or in another database: orderclose runbook orders-are-overdue-in-the-database"))
		}
		switch f := s.Failure; {
		case f != nil && f.Cause == string(orderclose.Paused):
			return append(now, say("closing is paused: %s: orderclose runbook closing-is-paused", f.Error))
		case f != nil:
			return append(now, say("it cannot be closed: %s: orderclose runbook an-order-cannot-be-closed", f.Error))
		case s.closes.Pays:
			return append(now, say("a compensator asks the payment provider, and closes it unless the provider says paid or has no answer; now: orderclose compensate"))
		case o.Meaning != "":
			return append(now, say("a compensator closes it, unless orders.where or orders.not_before excludes it; now: orderclose compensate"))
		}
		return append(now, say("a compensator closes it within half a minute, or now: orderclose compensate"))
	}
	return append(Sentence{say("unpaid, due in %s", o.Due.Sub(s.Database.At).Round(time.Second))}, record...)
}

// unpaid reports whether an order is unpaid. An order in tables of the shop has a meaning.
func unpaid(o *store.OrderRow) bool { return o.Status == store.Unpaid || o.Meaning == "unpaid" }

// pending says that the order waits for an answer of the payment provider, if its waiting record says so.
func (s History) pending() Sentence {
	for _, p := range s.Topics {
		for _, r := range p.Records {
			if r.Waits && !r.PendingSince.IsZero() {
				return Sentence{
					say("it waits for the payment provider, which has no answer (unknown) since %s: ask it, such as with orderclose-payments --ask %s",
						text.Stamp(r.PendingSince), text.ShellQuote(s.ID)),
					say("a compensator asks again, and closes nothing without an answer: orderclose runbook the-payment-provider-does-not-answer"),
				}
			}
		}
	}
	return nil
}

// record says where the order's record is: the waiting one, or else the dead letter, or else the one that a closer has acknowledged.
func (s History) record() (where Sentence, acked bool) {
	searched, dead := false, deadletters.Position{Offset: -1}
	none := Sentence{say("no record of it waits")}
	for _, p := range s.Topics {
		searched = searched || p.Problem == "" && p.hasGroup()
		for _, r := range p.Records {
			switch {
			case r.Waits && !r.Leaves.IsZero():
				return Sentence{say("its record waits in %s/%d at %d and leaves at %s", p.Topic, r.Partition, r.Offset, r.Leaves)}, false
			case r.Waits:
				return Sentence{say("its record is in %s/%d at %d and is not committed yet", p.Topic, r.Partition, r.Offset)}, false
			case r.Dead != nil:
				dead = deadletters.Position{Partition: r.Partition, Offset: r.Offset}
			case p.Kind == KindClose:
				none, acked = append(none[:1], say("a member of the closers' group has acknowledged the one in %s/%d at %d", p.Topic, r.Partition, r.Offset)), true
			}
		}
	}
	switch {
	case dead.Offset >= 0:
		return Sentence{say("its record is a dead letter: orderclose dlq show %s", dead)}, false
	case !searched:
		return Sentence{say("its record was not searched for")}, false
	case s.Skipped() > 0:
		return Sentence{say("no record of it waits in the searched part"), say("%d offsets were skipped, search more with --budget", s.Skipped())}, false
	}
	return none, acked
}

// Phrase is a part of a sentence: a format of package fmt and its values. The console translates formats; everything else uses String.
type Phrase struct {
	Format string
	Args   []any
}

// say returns a Phrase. A test of the console finds the formats by the name of this function.
func say(format string, args ...any) Phrase { return Phrase{format, args} }

// String returns the phrase in English, with moments in UTC.
func (p Phrase) String() string { return p.In(p.Format, text.Stamp) }

// In returns the phrase in another format, such as that of another language. at writes the moments among the arguments.
func (p Phrase) In(format string, at func(time.Time) string) string {
	args := slices.Clone(p.Args)
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			args[i] = at(v)
		case time.Duration:
			args[i] = config.FormatDuration(v)
		}
	}
	return fmt.Sprintf(format, args...)
}

// Sentence consists of phrases. In JSON it is the text of String.
type Sentence []Phrase

// String returns the sentence in English.
func (s Sentence) String() string {
	parts := make([]string, len(s))
	for i, p := range s {
		parts[i] = p.String()
	}
	return strings.Join(parts, "; ")
}

// MarshalJSON implements json.Marshaler.
func (s Sentence) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Sentence) UnmarshalJSON(b []byte) error {
	var text string
	err := json.Unmarshal(b, &text)
	*s = Sentence{{"%s", []any{text}}}
	return err
}
