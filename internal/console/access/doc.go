// Package access decides who may open the web console, and makes its HTTP safe. Gate.Wrap is the
// outermost handler of the console; Gate.Action wraps each handler that changes data. Handlers
// learn by From who the user is, and write a line for each action by Audit.
//
//	gate.go       Options, New, Wrap: the order of all checks; headers of every response
//	request.go    what a request is: its path, its body, of a page or of the API
//	identity.go   who the user is: From, Role; by a client certificate, or a header that a proxy sets
//	passwords.go  identity by basic auth, with bcrypt, and how fast one address may guess
//	session.go    the cookie of a user whose password was accepted
//	peer.go       which addresses may connect: the loopback, proxies, others with TLS; which Host headers are accepted
//	webfile.go    the web configuration file: TLS and users; it is read again when it changes
//	refusal.go    every reason for which a request is refused
//	log.go        the log of requests
//
// A request passes the checks in this order: method and path, Host, the address of the peer,
// other sites, identity, for the API the content type, and for an action the role. A check that
// fails ends the request with a Refusal, which the console renders.
//
// What the package guarantees:
//
//   - A request with an unknown Host, of another site, or without identity reaches no handler,
//     except for the public paths, which have no data.
//   - Only an operator reaches a handler that Action wraps, and only if actions are on.
//   - Neither a password, a query nor a body appears in a log line or a Refusal, except the fields of
//     a confirmed plan, in its audit line.
//
// The file is that of github.com/prometheus/exporter-toolkit/web, whose Config and ConfigToTLSConfig
// read it. The toolkit's own handler cannot be used for passwords. web.Serve puts it before every
// other handler, so that passwords would be hashed before the checks above and before the throttle.
// It reads the file for each request, and lets everybody in while the file names no user, as while
// somebody writes it; it does not tell the next handler. Roles need to know that the name was
// checked. So passwords.go compares the hashes that the file had when it was last valid.
package access
