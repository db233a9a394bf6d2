// Package overdue has the values that the loop of the compensator and the store exchange: which due times a read covers, what it has
// found, and the counts of an hour.
package overdue

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/pausing"
)

// MaxRows is how many rows of the index one read returns at most of each range: of a table, or with due times by rule of a table and a delay. It
// counts also rows of orders that are excluded or have another delay. So a read takes some 10 ms, whatever waits.
const MaxRows = 5000

// ErrSlow says that the server has ended a read after its time limit. The read may succeed with a shorter Window. The error also wraps
// orderclose.ErrUnavailable.
var ErrSlow = errors.New("the read took too long")

// Window is a range of due times.
type Window struct {
	After  orderclose.Order // the read begins behind this order, by due time and id; the zero Order: at the oldest
	To     time.Time        // the latest due time
	Newest bool             // the read begins at To and goes back to After
	// Before, with Newest, is the order before which the read goes on, by due time and id: Found.Reached of the read before. Zero: it begins at To.
	Before orderclose.Order
	Rows   int // how many rows of the index it reads at most of each range; 0: MaxRows
}

// Found is what a read has found.
type Found struct {
	// Orders are unpaid and not excluded, in the order of the read: the oldest first, or with Window.Newest the newest.
	Orders []orderclose.Order
	// All says that the read covers the whole Window. Otherwise it covers the orders up to Reached, with Window.Newest those from Reached on.
	All     bool
	Reached orderclose.Order
}

// Begin is what a turn of the loop begins with.
type Begin struct {
	Now time.Time // by the database's clock
	// Pauses are the pauses that are on, and those that have ended within the last day.
	Pauses []pausing.Pause
	// Quiet says that no unpaid order was due at the time that the turn has asked for, or before: there is nothing to read.
	Quiet bool
}

// Counts are numbers of orders that the loop has decided on.
type Counts struct {
	Missed       int64 `json:"missed"`        // closed; nothing but a lost or late record explains why the pipeline had not
	AfterPause   int64 `json:"after_pause"`   // closed, after a pause of their category has ended
	AfterFailure int64 `json:"after_failure"` // closed, after an earlier try or the store had failed
	NotClosed    int64 `json:"not_closed"`    // tried for the first time, and not closed
}

// Add adds other counts.
func (c *Counts) Add(o Counts) {
	c.Missed, c.AfterPause, c.AfterFailure, c.NotClosed = c.Missed+o.Missed, c.AfterPause+o.AfterPause, c.AfterFailure+o.AfterFailure, c.NotClosed+o.NotClosed
}

// String returns the counts in words.
func (c Counts) String() string {
	return fmt.Sprintf("%d missed, %d after a pause, %d after a failure, %d not closed at the first try", c.Missed, c.AfterPause, c.AfterFailure, c.NotClosed)
}

// Hour is the row of one compensation: what the loop did in one period, and whether a pass over all overdue orders began in it and ended.
type Hour struct {
	Begin time.Time `json:"begin"` // of the period, by the database's clock
	Counts
	// State is "" while no pass that began in the period has ended, else Finished or Unfinished.
	State      string    `json:"state"`
	Ended      time.Time `json:"ended,omitzero"` // when the state was written
	TookMillis int64     `json:"took_ms"`        // how long the pass took
}

// States of an Hour.
const (
	Finished   = "finished"
	Unfinished = "unfinished" // half of the period was over, and no pass had ended
)
