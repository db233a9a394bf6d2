// Package access decides who may open the web console, and makes its HTTP safe. Gate.Wrap is the
// outermost handler of the console; Gate.Action wraps each handler that changes data. Handlers
// learn by From who the user is.
//
//	gate.go       Options, New, Wrap: the order of all checks; headers of every response
//	request.go    what a request is: its path and its body
//	identity.go   who the user is: From, Role; nobody on the loopback, or the header that a proxy sets
//	peer.go       which addresses may connect: the loopback, or proxies; which Host headers are accepted
//	refusal.go    every reason for which a request is refused
//
// The console has no passwords, sessions, certificates and TLS: a proxy signs users in, and names them. Without a
// proxy the loopback looks, and nobody acts.
//
// A request passes the checks in this order: method and path, Host, the address of the peer,
// other sites, identity, and for an action the role. A check that
// fails ends the request with a Refusal, which the console renders.
//
// What the package guarantees:
//
//   - A request with an unknown Host, of another site, or without identity reaches no handler,
//     except for the files below /static/, which have no data.
//   - Only an operator reaches a handler that Action wraps. Without operators nobody does.
//   - Nothing of a request appears in a log line or a Refusal, but the user's name and address.
package access
