// Package read reads orders and what was done with them: the rows of one order, audits, counts and the outboxes.
//
// The files:
//
//	history.go       all rows of one order; the statuses of the reference schema
//	audit.go         the rows of many orders, and whether their stock moved once
//	counts.go        the categories of orders, and how many have which state
//	outbox.go        the outboxes of events and of schedules; transactions of the webhook
//	eventsagain.go   events that their topic has lost
package read
