// Package checkout is a small shop over HTTP: orders are created, paid, cancelled, shipped and
// confirmed, and the pipeline closes unpaid orders. It shows what a shop must do to use the
// pipeline. orderclose-dev serve runs it.
//
// New returns a Shop, and Shop.Run serves it.
//
//	run.go      serves the shop until a context ends
//	machine.go  the states of an order, and the events allowed in each (a table)
//	shop.go     what customers and staff do, each in one transaction
//	read.go     reads an order, and closes it if it is past due
//	payment.go  starting a payment, and the provider's callback
//	requests.go idempotent requests: a repeat has no effect and gets the same answer
//	view.go     the status in Redis: a cached view
//	events.go   the reader of events: informs the customer, returns points
//	tables.go   the shop's own tables
//	http.go     the HTTP API; problem.go its errors
//	metrics.go  counters for Prometheus
//
// The database decides everything. Redis holds a copy of each order's status for repeated
// reads; nothing is decided by it.
package checkout
