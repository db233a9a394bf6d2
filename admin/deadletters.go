package admin

import (
	"context"
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
// Order, a text that says what the database knows of the order: open, ended, or "" if it is not known. IsOpen reports whether somebody
// has to look at it: its order is unpaid or, for 24 hours, not known.
type DeadLetter = deadletters.Letter

// WholeDeadLetter is a DeadLetter with its record: Headers, a list of Key and Value, which are texts; Value, which is a json.RawMessage if it is
// JSON, or a string, or nil and then Base64 has its bytes; and OrderProblem, a text that says why it is no valid record of an order.
type WholeDeadLetter = deadletters.Whole

// DeadLetterFilter selects dead letters: by the texts Cause, Stage, Source (the topic of the record) and Order (its id), by Since, the time
// from which on they were appended, and by Open, whether only open ones. A zero field selects all.
type DeadLetterFilter = deadletters.Filter

// DeadLetterList has Letters, the newest first; Open, the numbers of the open ones of the filter by cause; and More, whether there are older ones.
type DeadLetterList = deadletters.List

// letters returns the topic of dead letters, if Kafka answers.
func (a *Admin) letters(ctx context.Context) (deadletters.Topic, error) {
	if a.p.Kafka == nil {
		return deadletters.Topic{}, ErrNoKafka
	}
	return a.p.DeadLetters(), a.p.Kafka.Ping(ctx)
}

// DeadLetters lists the dead letters of a filter, at most limit; 0: up to 100,000. It reads the topic, and the status of the orders in the
// database. The error wraps ErrNoKafka. ReplayRequest.DeadLetters sends them again.
func (a *Admin) DeadLetters(ctx context.Context, f DeadLetterFilter, limit int) (DeadLetterList, error) {
	topic, err := a.letters(ctx)
	if err != nil {
		return DeadLetterList{}, err
	}
	if limit <= 0 || limit > deadletters.MaxLetters {
		limit = deadletters.MaxLetters
	}
	return topic.List(ctx, f, limit)
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
