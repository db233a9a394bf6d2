// Package httpcall calls two HTTP services of a user: the service that closes orders, and the
// payment provider. docs/http.md describes the protocol for other languages: POST requests with
// JSON, signed by internal/signature. Package webhook sends its events by a Client too.
//
// Client sends requests. Receive and Reply handle them in a service. An Endpoint decides how
// long a call may take, and when the service is not called: create one for each service and
// call the service through Do.
//
//	client.go    sending a request
//	receive.go   handling a request in a service; refusing requests of browsers
//	endpoint.go  the circuit breaker: several failures in a row open it, and calls then fail
//	             at once, except for one call every 5 s that probes the service
//	timeout.go   the timeout of a call: 500 ms for the first 100 calls, then one and a half
//	             times the p99 of the last calls; doubled after a timeout; 50 ms to 3 s
//
// Neither side trusts the other: both limit the size of what they read, and the receiver
// verifies the signature before it decodes the body.
package httpcall
