package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// Sweep is a finished compensation of a period, or a finished pass by hand. Its process appends it to the control topic, also if it
// failed. The numbers of a period are those of what the process has done in it.
type Sweep struct {
	StartedAt  time.Time   `json:"started_at"`      // by the database's clock; if that could not be read, by the machine's
	Cutoff     time.Time   `json:"cutoff,omitzero"` // the pass covers orders due at or before this time
	TookMillis int64       `json:"took_ms"`
	Lock       string      `json:"lock"`   // held, unavailable, stuck, or none, as of a pass by hand
	Holder     string      `json:"holder"` // the process, as compensator@host:pid:port
	Why        SweepReason `json:"why"`
	// PeriodMillis is the process's compensator.period; 0: a pass by hand.
	PeriodMillis int64 `json:"period_ms,omitempty"`

	DryRun         bool `json:"dry_run,omitempty"` // the pass only counted; such a pass has no record
	Found          int  `json:"found"`
	Closed         int  `json:"closed"`
	AlreadyPaid    int  `json:"already_paid"`
	AlreadyClosed  int  `json:"already_closed"`
	NotDue         int  `json:"not_due"`
	Excluded       int  `json:"excluded"`
	Paused         int  `json:"paused"`
	PaymentPending int  `json:"payment_pending"`
	Failed         int  `json:"failed"`

	// Of a period, the closed orders are the sum of these kinds.
	Missed       int `json:"missed,omitempty"`        // the pipeline had missed them
	AfterPause   int `json:"after_pause,omitempty"`   // a pause of their category had ended
	AfterFailure int `json:"after_failure,omitempty"` // an earlier try, or the store, had failed

	Failures  []Failure `json:"failures,omitempty"` // the first MaxFailures of Failed
	OldestDue time.Time `json:"oldest_due,omitzero"`
	Error     string    `json:"error,omitempty"` // why it did not finish; empty: it did
}

// Ended returns when the pass ended.
func (s Sweep) Ended() time.Time {
	return s.StartedAt.Add(time.Duration(s.TookMillis) * time.Millisecond)
}

// MaxFailures limits the failed orders in a record: readers keep the records of a week in memory.
const MaxFailures = 20

// Failure is an order that could not be closed.
type Failure struct {
	OrderID string    `json:"order_id"`
	Cause   string    `json:"cause"`          // an orderclose.FailureCause
	Error   string    `json:"error"`          // the cause and what was found, in one sentence
	Times   int       `json:"times"`          // how often the process has failed to close it
	Since   time.Time `json:"since,omitzero"` // the first of them, by the database's clock
}

// String says since when an order fails, and why.
func (f Failure) String() string {
	if f.Times == 0 { // nobody has told
		return fmt.Sprintf("order %s cannot be closed: %s", f.OrderID, f.Error)
	}
	return fmt.Sprintf("order %s has failed %d times since %s: %s", f.OrderID, f.Times, f.Since.UTC().Format(time.RFC3339), f.Error)
}

// SweepReason is what a Sweep is about.
type SweepReason string

// The known reasons. Other values may appear in the topic.
const (
	SweepPeriod SweepReason = "period" // the compensation of a period
	SweepOnce   SweepReason = "once"   // a pass that a person or a program asked for
)

// KeySweep is the key of a Sweep in the control topic.
const KeySweep = "sweep"

// maxSweepText limits each text of a Sweep, in bytes.
const maxSweepText = 500

// Encode returns the sweep as a record of the control topic. It cuts long texts, and leaves out a due
// time whose year JSON cannot express.
func (s Sweep) Encode() (wire.Message, error) {
	s.Holder, s.Error = wire.Truncate(s.Holder, maxSweepText), wire.Truncate(s.Error, maxSweepText)
	s.Failures = slices.Clone(s.Failures[:min(len(s.Failures), MaxFailures)])
	for i := range s.Failures {
		s.Failures[i].Error = wire.Truncate(s.Failures[i].Error, maxSweepText)
	}
	if _, err := s.OldestDue.MarshalJSON(); err != nil {
		s.OldestDue = time.Time{}
	}
	value, err := json.Marshal(s)
	if err != nil {
		return wire.Message{}, fmt.Errorf("encode a sweep: %w", err)
	}
	return wire.Message{Key: []byte(KeySweep), Value: value}, nil
}

// DecodeSweep decodes a record that Encode wrote.
func DecodeSweep(value []byte) (s Sweep, err error) {
	if err := json.Unmarshal(value, &s); err != nil {
		return s, fmt.Errorf("decode a sweep: %w", err)
	}
	if s.StartedAt.IsZero() {
		return s, errors.New("decode a sweep: it has no started_at")
	}
	return s, nil
}
