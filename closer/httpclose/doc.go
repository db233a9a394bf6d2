// Package httpclose closes orders through a user's own HTTP service. Store sends
// batches of due orders to the service, signed, and receives one verdict for each
// order (store.go, ask.go, verdict.go). Handler is the receiving side for services in
// Go (handler.go); docs/http.md describes the requests for other languages.
//
// The service decides what closing means and whether an order is due. It may be asked
// more than once for an order, so closing must be idempotent.
package httpclose
