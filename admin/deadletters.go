package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose/internal/deadletters"
)

// Position is where a dead letter is in the topic of dead letters: Partition, an int, and Offset, an int64. As a text it is
// PARTITION/OFFSET, such as 0/17. ParsePosition reads that.
type Position = deadletters.Position

// ParsePosition returns the Position of a text, such as 0/17.
func ParsePosition(text string) (Position, error) { return deadletters.ParsePartitionOffset(text) }

// DeadLetter is a record that a part of the pipeline has given up: At, its Position; AppendedAt, a time; the texts Cause, Stage and Detail, which
// say why and who; Source, which has the Topic, Partition and Offset of the record; Key, the order's id if the record had one; and
// Resolution, a text: redriven, discarded, or "" while it is pending.
type DeadLetter = deadletters.Letter

// WholeDeadLetter is a DeadLetter with its record: Headers, a list of Key and Value, which are texts; Value, which is a json.RawMessage if it is
// JSON, or a string, or nil and then Base64 has its bytes; and OrderProblem, a text that says why it is no valid record of an order.
type WholeDeadLetter = deadletters.Whole

// DeadLetterFilter selects dead letters: by the texts Cause, Stage, Source (the topic of the record) and Order (its id), by Since, the time
// from which on they were appended, and by Positions. A zero field selects all. Through, a list of Position, has the last dead letter of
// each partition that is read, as DeadLetterPlan.Through has them; nil: all are read.
type DeadLetterFilter = deadletters.Filter

// DeadLetterPlan is what Redrive or Discard would do. Pending counts the pending dead letters of the filter, and ByCause has their numbers by
// cause. Doable returns how many would be sent or discarded. To has the numbers of records to send, by topic. Refused counts those that
// cannot be sent; Refusals has the first 100, each with At, Key, Cause and Why. Missing are the Positions of the filter that have no dead
// letter, and Settled those that were redriven or discarded before. Through is the end of the plan: with it in the filter, Redrive and
// Discard leave later dead letters alone.
type DeadLetterPlan = deadletters.Plan

// DeadLetterResult is what Redrive or Discard has done: the fields of DeadLetterPlan, and Done, how many dead letters were sent or
// discarded, and marked.
type DeadLetterResult = deadletters.Result

// DeadLetterList has dead letters, the oldest first.
type DeadLetterList struct {
	Letters []DeadLetter   `json:"letters"`
	Pending map[string]int `json:"pending"` // all pending ones of the filter, by cause
}

// letters returns the topic of dead letters, if Kafka answers.
func (a *Admin) letters(ctx context.Context) (*deadletters.Topic, error) {
	if a.p.Kafka == nil {
		return nil, ErrNoKafka
	}
	return &deadletters.Topic{Log: a.p.Kafka, Name: a.p.Config.Topics.DeadLetter}, a.p.Kafka.Ping(ctx)
}

// DeadLetters lists the pending dead letters of a filter, or with all also those that were redriven or discarded. It lists at most limit,
// and all with limit 0. It reads the topic. The error wraps ErrNoKafka.
func (a *Admin) DeadLetters(ctx context.Context, f DeadLetterFilter, all bool, limit int) (DeadLetterList, error) {
	topic, err := a.letters(ctx)
	if err != nil {
		return DeadLetterList{}, err
	}
	index, err := topic.List(ctx, f, all)
	if err != nil {
		return DeadLetterList{}, err
	}
	found := index.Letters(DeadLetterFilter{})
	if limit > 0 {
		found = found[:min(limit, len(found))]
	}
	return DeadLetterList{found, index.Pending()}, nil
}

// DeadLetter returns a dead letter with its record. The error wraps ErrNotFound or ErrNoKafka.
func (a *Admin) DeadLetter(ctx context.Context, at Position) (WholeDeadLetter, error) {
	topic, err := a.letters(ctx)
	if err != nil {
		return WholeDeadLetter{}, err
	}
	l, err := topic.Find(ctx, at)
	if err == nil && l == nil {
		err = fmt.Errorf("%w: %s has no dead letter at %v", ErrNotFound, topic.Name, at)
	}
	if err != nil {
		return WholeDeadLetter{}, err
	}
	return l.Whole(), nil
}

// PlanRedrive returns what Redrive would do. The error wraps ErrNoKafka.
func (a *Admin) PlanRedrive(ctx context.Context, f DeadLetterFilter) (DeadLetterPlan, error) {
	return a.planSettle(ctx, f, deadletters.Redriven)
}

// Redrive sends the pending dead letters of a filter again, after their cause was fixed: an order to its delay
// topic, and an event to the topic of events if the database knows what it says. To carry out a plan, set f.Through to
// DeadLetterPlan.Through. What was sent is marked, so a second call does nothing. progress is called with the dead letters handled and their
// total; nil: it is not. After an error the result counts what was done: call it again, repeats are harmless. The error wraps ErrNoKafka.
func (a *Admin) Redrive(ctx context.Context, f DeadLetterFilter, progress func(done, total int64)) (DeadLetterResult, error) {
	return a.settle(ctx, f, deadletters.Redriven, "Redrive", progress)
}

// PlanDiscard returns what Discard would do. The errors are those of Discard.
func (a *Admin) PlanDiscard(ctx context.Context, f DeadLetterFilter) (DeadLetterPlan, error) {
	return a.planSettle(ctx, f, deadletters.Discarded)
}

// Discard marks the pending dead letters of a filter as not needed. They stay in the topic. The filter must select some: by more than Through.
// Through, progress and errors are as in Redrive.
func (a *Admin) Discard(ctx context.Context, f DeadLetterFilter, progress func(done, total int64)) (DeadLetterResult, error) {
	return a.settle(ctx, f, deadletters.Discarded, "Discard", progress)
}

var errSelect = errors.New("select dead letters: set Cause, Stage, Source, Order, Since or Positions of the filter")

// settling returns the topic, and the options of a redrive or a discard.
func (a *Admin) settling(ctx context.Context, f DeadLetterFilter, how deadletters.ResolutionKind) (*deadletters.Topic, deadletters.Options, error) {
	o := deadletters.Options{Filter: f, How: how, Rules: a.p.RedriveRules()}
	if how == deadletters.Discarded && !f.Selects() {
		return nil, o, errSelect
	}
	topic, err := a.letters(ctx)
	return topic, o, err
}

func (a *Admin) planSettle(ctx context.Context, f DeadLetterFilter, how deadletters.ResolutionKind) (DeadLetterPlan, error) {
	topic, o, err := a.settling(ctx, f, how)
	if err != nil {
		return DeadLetterPlan{}, err
	}
	return topic.MakePlan(ctx, o)
}

func (a *Admin) settle(ctx context.Context, f DeadLetterFilter, how deadletters.ResolutionKind, call string, progress func(done, total int64)) (
	DeadLetterResult, error) {
	topic, o, err := a.settling(ctx, f, how)
	if err != nil {
		return DeadLetterResult{}, err
	}
	r, err := topic.Run(ctx, o, progress)
	return r, a.acted(ctx, r.Done > 0, err, call, f, r.Done)
}
