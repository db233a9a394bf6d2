// Package checkout is a small shop over HTTP: orders are created, paid,
// cancelled, shipped and confirmed, and those that nobody pays are closed by the
// pipeline. It shows what a shop has to do to be served by it, and is what
// orderclose-dev serve runs.
//
//	machine.go  the states of an order, and what may happen in each (a table)
//	shop.go     what customers and staff do, each in one transaction
//	payment.go  starting a payment, and the provider's callback
//	requests.go a request that comes twice has one effect and one answer
//	view.go     the status in Redis: a view, never the truth
//	events.go   the reader of events: tells the customer, gives points back
//	tables.go   tables of the shop's own
//	http.go     the HTTP API; problem.go its errors
//
// The database is the truth. Redis holds a copy of each order's status for those
// who ask again and again; nothing is decided by it.
package checkout
