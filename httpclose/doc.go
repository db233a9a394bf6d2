// Package httpclose closes orders through a user's own service: it sends batches
// of due orders to it, signed, and takes one verdict for each (store.go, ask.go,
// verdict.go). Handler (handler.go) is the other side for services in Go;
// docs/http.md describes the requests for any other language.
//
// The service decides what closing means and whether an order is due; it is asked
// at least once, so it must make closing twice the same as once.
package httpclose
