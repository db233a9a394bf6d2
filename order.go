package orderclose

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes is the maximum length of an order id, in bytes of UTF-8. It is the width
// of the id columns of the reference schema.
const MaxIDBytes = 64

// DefaultMaxDelay is the default maximum delay of an order. The default buckets were
// chosen for it.
const DefaultMaxDelay = 30 * 24 * time.Hour

// MaxDelaySlack is how far a due time may exceed the maximum delay and still be
// accepted: due times are rounded up to the millisecond, and clocks of checkouts,
// databases and brokers differ by less than a minute.
const MaxDelaySlack = time.Minute

// Order is what checkout passes to schedule the close of an order. In JSON it has the field names of
// records.
type Order struct {
	// ID identifies the order and is the key of its records: 1 to MaxIDBytes bytes of
	// UTF-8, without control characters and without space at either end.
	ID string `json:"order_id"`
	// Category is the category that decided the delay. It only travels with the record,
	// for metrics and readers.
	Category string `json:"category,omitempty"`
	// CreatedAt is when the order was created.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// Due is when the order is to be closed if it is still unpaid. It is computed
	// once, written with the order, and never recomputed.
	// NeverDue: it is never closed, and nothing is scheduled.
	Due time.Time `json:"due_at"`
	// Deadline is when the customer was told to have paid by, at or before Due. It only travels with
	// the record. Zero: not known, or there is none because the order is never closed.
	Deadline time.Time `json:"deadline_at,omitzero"`
	// Attributes are free-form data that travel with the record; this program does
	// not interpret them. Numbers of a decoded record have the type json.Number.
	Attributes map[string]any `json:"attributes,omitempty"`
}

// Reasons to reject an order; compare with errors.Is. The error of Validate names the
// order and says what to do.
var (
	ErrEmptyID   = errors.New("order id is empty")
	ErrLongID    = errors.New("order id is too long")
	ErrInvalidID = errors.New("order id has characters that are not allowed")
	ErrNoDue     = errors.New("order has no due time")
	ErrDueTooFar = errors.New("order is due too far ahead")
)

// OrderError names the rejected order, the reason, and what to do about it.
type OrderError struct {
	OrderID string // as given, cut to MaxIDBytes
	Reason  error  // one of the Err values above
	Hint    string // what the caller can do
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("order %q refused: %v: %s", e.OrderID, e.Reason, e.Hint)
}

// Unwrap returns the reason.
func (e *OrderError) Unwrap() error { return e.Reason }

// Validate reports why o cannot be scheduled at the time now: a bad id, no due time (or one before 1970),
// or a due time further ahead than max plus MaxDelaySlack. A due time in the past is
// valid: such an order is closed at once. The error is an *OrderError.
func (o Order) Validate(now time.Time, max time.Duration) error {
	if err := ValidateID(o.ID); err != nil {
		return err
	}
	if o.Due.Unix() <= 0 { // also a due time that was computed from a zero CreatedAt
		return &OrderError{o.ID, ErrNoDue, "set Due to the time written with the order"}
	}
	if ahead := o.Due.Sub(now); ahead > max+MaxDelaySlack { //mutant:no-clock-slack
		due := "in " + ahead.Round(time.Second).String()
		if ahead > 365*24*time.Hour { // probably a wrong date, which a number of hours would not show
			due = "on " + o.Due.UTC().Format(time.DateOnly)
		}
		return &OrderError{o.ID, ErrDueTooFar, fmt.Sprintf(
			"it is due %s and at most %v is allowed (delays.max in topics.yaml)", due, max)}
	}
	return nil
}

// ValidateID checks that id is a valid order id. The error is an *OrderError.
func ValidateID(id string) error {
	switch {
	case id == "":
		return &OrderError{id, ErrEmptyID, "give every order an id of its own"}
	case len(id) > MaxIDBytes:
		return &OrderError{cut(id, MaxIDBytes), ErrLongID, fmt.Sprintf(
			"it has %d bytes and at most %d are allowed", len(id), MaxIDBytes)}
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) || strings.TrimSpace(id) != id:
		return &OrderError{id, ErrInvalidID, "use UTF-8 without control characters or space at either end"}
	}
	return nil
}

// CeilMilli rounds t up to the next whole millisecond.
func CeilMilli(t time.Time) time.Time {
	if down := t.Truncate(time.Millisecond); !down.Equal(t) {
		return down.Add(time.Millisecond)
	}
	return t
}

// cut returns at most the first n bytes of s, without splitting a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
