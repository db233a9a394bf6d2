// Package tcpproxy stands between a client and a server, for tests, and does to
// their connections what networks do: cuts, stalls, half-open connections, delay,
// little bandwidth, an answer that is lost.
//
//	proxy.go  the listener, and what can be done to connections
//	link.go   one connection and its two directions
//
// It does not look into what passes, but for the pattern of a trap, so it serves
// MySQL and Redis alike. Kafka's clients go to the addresses that the broker
// tells them, past a proxy that it does not know.
package tcpproxy

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is where bytes go.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// Rules are what happens to the bytes of one direction, of connections there are
// and of those to come. The zero value passes everything on at once.
type Rules struct {
	Delay time.Duration // each piece goes on that much later
	Rate  int           // bytes a second at most; 0 is no limit
	// Hold stalls: nothing goes on, and nothing is lost; it goes on when the rules
	// change.
	Hold bool
	// Drop swallows what is sent. A connection that lost something this way is cut
	// by the next piece after the rules have changed.
	Drop bool
	// CutAfter cuts a connection once this many bytes have passed since the rules
	// were set, in the middle of a piece if need be; 0 is never.
	CutAfter int
}

// Proxy is a listener on loopback. Make it with New. Its methods may be called
// from any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	rules   [2]Rules
	refuse  bool
	traps   []*trap
	changed chan struct{} // closed when the rules change
	closed  bool
}

// trap waits for a pattern on its way to the server.
type trap struct {
	pattern []byte
	before  bool          // cut without passing the pattern on
	sprung  chan struct{} // closed when it was done
}

// New listens on a free port of 127.0.0.1 and passes connections on to target,
// which is host:port and need not be there yet.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("a proxy to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]bool{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts everything and returns when all has ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve serves one connection until both sides are done with it. A connection
// that the server does not take is reset.
func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{proxy: p, client: client, done: make(chan struct{})}
	if !p.add(l) {
		reset(client)
		return
	}
	defer p.remove(l)
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		l.cut()
		return
	}
	l.run(server.(*net.TCPConn))
}

// dialTimeout bounds how long a server that does not answer is waited for.
const dialTimeout = 5 * time.Second

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// Set sets the rules of a direction.
func (p *Proxy) Set(d Direction, r Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[d] = r
	p.announce()
}

// Stall holds both directions: connections are taken, and nothing comes of it.
func (p *Proxy) Stall() {
	p.Set(ToServer, Rules{Hold: true})
	p.Set(ToClient, Rules{Hold: true})
}

// Refuse resets connections that are opened from now on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
}

// Heal takes back every rule, trap and refusal. Connections that are broken stay
// broken.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.refuse, p.traps = [2]Rules{}, false, nil
	p.announce()
}

// announce wakes whoever holds something back. The mutex is held.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut resets every connection, on both sides, and returns how many.
func (p *Proxy) Cut() int { return p.each((*link).cut) }

// HalfOpen resets every connection towards the server, and leaves the client in
// the belief that it is there: what it sends is swallowed, and nothing comes. It
// returns how many.
func (p *Proxy) HalfOpen() int { return p.each((*link).halfOpen) }

func (p *Proxy) each(do func(*link)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
	return len(p.links)
}

// CutBefore resets the next connection on which a client sends pattern; the
// server does not get all of it. The channel is closed when it has happened.
func (p *Proxy) CutBefore(pattern []byte) <-chan struct{} { return p.lay(pattern, true) }

// CutAnswer passes the next pattern that a client sends on, waits for the
// server's answer, and resets the connection without it: what was asked is done,
// and the client cannot know. The channel is closed when it has happened.
func (p *Proxy) CutAnswer(pattern []byte) <-chan struct{} { return p.lay(pattern, false) }

func (p *Proxy) lay(pattern []byte, before bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trap{pattern: pattern, before: before, sprung: make(chan struct{})}
	p.traps = append(p.traps, t)
	return t.sprung
}

// MySQLCommit is the packet by which go-sql-driver commits a transaction, as a
// pattern: seven bytes, the first of an exchange, COM_QUERY.
var MySQLCommit = []byte("\x07\x00\x00\x00\x03COMMIT")
