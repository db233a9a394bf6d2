// Package checkout is a small shop over HTTP: orders are created, paid, cancelled, shipped and
// confirmed, and the pipeline closes unpaid orders. It shows what a shop must do to use the
// pipeline. orderclose-dev serve runs it.
//
// New returns a Shop, and Shop.Run serves it.
//
//	run.go      serves the shop until a context ends
//	machine.go  the states of an order, and the events allowed in each (a table)
//	shop.go     what customers and staff do, each in one transaction
//	create.go   creates an order, and schedules its close
//	read.go     reads an order, and closes it if it is past due
//	payment.go  starting a payment, and the provider's callback
//	coupons.go  coupons, which a close gives back in its transaction
//	requests.go idempotent requests: a repeat has no effect and gets the same answer
//	view.go     the status in Redis: a cached view
//	events.go   the readers of events: SMS, points, logistics and delivery
//	tables.go   the shop's own tables
//	http.go     the HTTP API
//	page.go     the page that counts down
//	problem.go  errors
//	metrics.go  counters for Prometheus
//
// Packages below it can be copied one by one: ordercache caches orders in the memory of a process,
// before Redis; idfilter answers reads of ids that no order has; notices runs several readers of
// events, each of which tells one service; shopdb has the SQL of orders.
//
// The database decides everything. The caches hold copies for repeated reads, and nothing is decided
// by them.
package checkout
