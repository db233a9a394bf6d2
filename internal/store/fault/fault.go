// Package fault names the causes of database errors. Each kind of database maps the errors of its driver
// to them.
package fault

import "errors"

// Fault is the cause of an error, which decides what may be done about it.
type Fault int

const (
	// Order is a failure that the data of an order may have caused: the others may
	// succeed without the order.
	Order Fault = iota
	// Duplicate is a unique key that exists already.
	Duplicate
	// Retry is a transaction that lost a conflict with another transaction: a retry
	// is likely to succeed.
	Retry
	// Unavailable is a failure of the database: not reachable, read-only, full,
	// overloaded, or without the tables or privileges that are needed.
	Unavailable
)

var (
	// ErrZone says that a connection's session is not in UTC although the store sets UTC, for example because of a
	// proxy.
	ErrZone = errors.New("the session's time zone is not UTC")
	// ErrPool says that connections of the program's own pool cannot be used as they are.
	ErrPool = errors.New("the database pool (*sql.DB) is not set up for orderclose")
)
