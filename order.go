package orderclose

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxIDBytes is the longest order id that is accepted, in bytes of UTF-8. It is
// the width of the id columns of the reference schema.
const MaxIDBytes = 64

// DefaultMaxDelay is how far ahead a due time may lie unless the configuration
// says otherwise: the horizon that the default buckets were laid out for.
const DefaultMaxDelay = 30 * 24 * time.Hour

// MaxDelaySlack is by how much a due time may lie past a maximum delay and still be
// accepted: due times are rounded up to the millisecond, and clocks of checkouts,
// databases and brokers differ by less than a minute.
const MaxDelaySlack = time.Minute

// MaxDelayLimit is the largest maximum delay that the configuration can set, some ten
// years. An order that was accepted once is given up only for a due time further ahead
// than this, which is nonsense whatever the configuration says: a smaller maximum is for
// new orders, not for those on their way.
const MaxDelayLimit = 3660 * 24 * time.Hour

// BeyondLimit reports whether a due time that is so far ahead is nonsense: more than
// MaxDelayLimit and MaxDelaySlack.
func BeyondLimit(ahead time.Duration) bool { return ahead > MaxDelayLimit+MaxDelaySlack }

// Order is what checkout knows of an order when it schedules its close.
type Order struct {
	// ID names the order, and is the key of its records: 1 to MaxIDBytes bytes of
	// UTF-8 without control characters or space at either end.
	ID string
	// Category is the category that decided the delay; it is carried along for
	// metrics and for readers, nothing is computed from it again.
	Category string
	// CreatedAt is when the order was made.
	CreatedAt time.Time
	// Due is when the order is to be closed if it is still unpaid. It is computed
	// once, written with the order, and never recomputed.
	Due time.Time
	// Attributes are free: they travel with the record and mean nothing here. The
	// numbers of a record that was read are of type json.Number.
	Attributes map[string]any
}

// What can be wrong with an order. Compare with errors.Is; the error that
// Validate returns names the order and says what to do.
var (
	ErrEmptyID   = errors.New("order id is empty")
	ErrLongID    = errors.New("order id is too long")
	ErrInvalidID = errors.New("order id has characters that are not allowed")
	ErrNoDue     = errors.New("order has no due time")
	ErrDueTooFar = errors.New("order is due too far ahead")
)

// OrderError says which order was refused, why, and what to do about it.
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

// Validate reports what makes o impossible to schedule at the given moment:
// its id, a missing due time, or a due time further ahead than max and MaxDelaySlack. A
// due time
// in the past is fine: such an order is closed at once. The error is an
// *OrderError.
func (o Order) Validate(now time.Time, max time.Duration) error {
	if err := ValidateID(o.ID); err != nil {
		return err
	}
	if o.Due.IsZero() {
		return &OrderError{o.ID, ErrNoDue, "set Due to the time written with the order"}
	}
	if ahead := o.Due.Sub(now); ahead > max+MaxDelaySlack {
		due := "in " + ahead.Round(time.Second).String()
		if ahead > 365*24*time.Hour { // a slip in the date, which hours do not show
			due = "on " + o.Due.UTC().Format(time.DateOnly)
		}
		return &OrderError{o.ID, ErrDueTooFar, fmt.Sprintf(
			"it is due %s and at most %v is allowed (delays.max in topics.yaml)", due, max)}
	}
	return nil
}

// ValidateID reports whether id can name an order. The error is an *OrderError.
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

// cut returns at most n bytes of s, without splitting a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
