// Package orderclose defines what a shop and the readers of its events use: an order and its
// due time, the delays and their buckets, the verdict of a close, and the event for a closed
// order.
//
// An order takes this path. Checkout writes the order with its due time to the database
// and schedules its close (package producer): directly, or by a row of an outbox table
// that a dispatcher publishes (package outbox). The record waits in delay topics, and
// relays forward it from one to the next (package delayrelay) until it reaches the
// close topic. There the closer closes the order if it is still unpaid, and returns
// its stock in the same transaction (package closer). The transaction writes an event,
// which a dispatcher publishes. If a service keeps the stock, a worker reads the events
// and returns the stock there (package release). Once an hour a sweep of the database
// closes the orders that the pipeline missed (package compensator). Package pipeline
// runs all these parts in a program of yours.
//
// The package imports only the standard library and does no I/O. Everything in it is
// a value or a pure function, so that the decisions that must never be wrong can be
// tested without a server.
package orderclose
