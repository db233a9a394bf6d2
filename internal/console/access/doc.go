// Package access decides who may open the web console, and makes its HTTP safe. Gate.Wrap is the
// outermost handler of the console; Gate.Action wraps each handler that changes data. Handlers
// learn by From who the user is, and write a line for each action by Audit.
//
//	gate.go       Options, New, Wrap: the order of all checks
//	request.go    what a request is: its path, its body, of a page or of the API
//	identity.go   who the user is: From, Role
//	host.go       which Host headers are accepted
//	peer.go       which addresses may connect: the loopback, proxies, others with TLS
//	headers.go    headers of every response
//	login.go      the login form and the logout; safeNext: where a login leads
//	tokens.go     identity by a token: the file, the login, bearer tokens
//	sessions.go   sessions after a login, in memory
//	passwords.go  identity by basic auth: the file, bcrypt
//	proxy.go      identity by a header that a proxy sets
//	file.go       a file that is read again when it changes
//	throttle.go   how fast one address may guess
//	refusal.go    every reason for which a request is refused
//	log.go        Audit, and the log of requests
//
// A request passes the checks in this order: method and path, Host, the address of the peer,
// other sites, identity, for the API the content type, and for an action the role. A check that fails ends the
// request with a Refusal, which the console renders.
//
// What the package guarantees:
//
//   - A request with an unknown Host, of another site, or without identity reaches no handler,
//     except for the public paths, which have no data.
//   - Only an operator reaches a handler that Action wraps, and only if actions are on.
//   - Neither a token, a password, a cookie, a query nor a body appears in a log line or a Refusal,
//     except the fields of a confirmed plan, in its audit line.
//
// Sessions and the results of password checks live in the memory of the process: a restart ends
// all sessions, and several consoles behind one address need a proxy that keeps a user on one of
// them.
package access
