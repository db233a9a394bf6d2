// Package orderclose holds the words that every part of the system shares: an
// order and when it is due, the record that carries it through Kafka, the
// buckets it waits in, and what closing said of it.
//
// The way of one order: checkout writes it to the database with its due time
// and schedules it (package producer); it waits in per-delay topics, moved on
// by relays (package delayrelay), until its record reaches the close topic;
// there it is closed if it is still unpaid, in one transaction with its stock
// (package closer). Once an hour a sweep of the database closes what the
// pipeline missed (package compensator).
//
// The package imports the standard library only and does no I/O: everything in
// it is a value or a pure function, so that the decisions which must never be
// wrong can be tested without a server.
package orderclose
