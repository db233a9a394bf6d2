package testkit

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is the direction of bytes.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// ProxyRules are applied to the bytes of one direction, of present and future connections. The zero value forwards everything at once.
type ProxyRules struct {
	Delay time.Duration // each piece is forwarded that much later
	Rate  int           // bytes a second at most; 0: no limit
	// Hold stalls: nothing is forwarded and nothing is lost until the rules change.
	Hold bool
	// Drop discards all bytes. A connection that has lost bytes is cut at its next piece after the rules have changed.
	Drop bool
	// CutAfter cuts a connection after this many bytes since the rules were set, in the middle of a piece if necessary; 0: never.
	CutAfter int
}

// Proxy is a TCP proxy on loopback that injects the faults of networks: it cuts connections, stalls them, leaves them half-open, delays them, limits
// their bandwidth, and loses answers. Create it with NewProxy, and let clients connect to Addr. Its methods change what happens to present and future
// connections, and Heal ends all faults. They are safe for concurrent use.
//
// The proxy looks into the bytes only for the pattern of a trap, so it serves any protocol, such as those of MySQL and Redis. Kafka's clients connect to
// the addresses that the brokers report, so a proxy in front of a broker must be its advertised listener.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	links   map[*link]bool
	rules   [2]ProxyRules
	refuse  bool
	traps   []*trap
	pieces  int           // that clients have sent
	stallAt int           // at this piece, the proxy stalls; 0: never
	stalled chan struct{} // is closed then
	texts   [][]byte      // are counted
	counted atomic.Int64
	changed chan struct{} // is closed and replaced when the rules change
	closed  bool
}

// trap waits for a pattern among the bytes to the server.
type trap struct {
	pattern   []byte
	before    bool          // cut without forwarding the pattern
	triggered chan struct{} // is closed when the connection was cut
}

// NewProxy listens on a free port of 127.0.0.1 and forwards connections to target, which is host:port. The target need not listen yet.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy to %s: %w", target, err)
	}
	p := &Proxy{listener: l, target: target, links: map[*link]bool{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts all connections and returns when all goroutines have ended.
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

// serve serves one connection until both directions have ended. If the server refuses the connection, serve resets the client's.
func (p *Proxy) serve(client *net.TCPConn) {
	l := &link{proxy: p, client: client, done: make(chan struct{})}
	if !p.add(l) {
		reset(client)
		return
	}
	defer p.remove(l)
	server, err := net.DialTimeout("tcp", p.to(), dialTimeout)
	if err != nil {
		l.cut()
		return
	}
	l.run(server.(*net.TCPConn))
}

// to returns where connections are forwarded now.
func (p *Proxy) to() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Redirect forwards connections to another server from now on, as after a failover. It cuts those to the former one.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// dialTimeout bounds the wait for a server that does not answer.
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
func (p *Proxy) Set(d Direction, r ProxyRules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[d] = r
	p.announce()
}

// Stall holds both directions. Connections are accepted, and nothing is forwarded.
func (p *Proxy) Stall() {
	p.Set(ToServer, ProxyRules{Hold: true})
	p.Set(ToClient, ProxyRules{Hold: true})
}

// StallBefore stalls before the n-th piece that clients send from now on, over all connections: with a driver that writes a statement at once, a
// statement or a part of a long one. The server then sees what it sees of a client that is stopped, or whose host has disappeared. The channel is
// closed when the proxy stalls.
func (p *Proxy) StallBefore(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stallAt, p.stalled = p.pieces+n, make(chan struct{})
	return p.stalled
}

// Pieces returns how many pieces clients have sent; see StallBefore.
func (p *Proxy) Pieces() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pieces
}

// tick counts a piece that a client sends.
func (p *Proxy) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pieces++; p.pieces == p.stallAt {
		p.rules = [2]ProxyRules{{Hold: true}, {Hold: true}}
		p.announce()
		close(p.stalled)
	}
}

// Refuse resets all connections that are opened from now on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
}

// Disconnect resets all connections, and those that are opened from now on.
func (p *Proxy) Disconnect() {
	p.Refuse()
	p.Cut()
}

// Heal removes all rules, traps and refusals. Broken connections stay broken.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.refuse, p.traps = [2]ProxyRules{}, false, nil
	p.announce()
}

// announce wakes all goroutines that hold bytes back. The caller holds mu.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut resets every connection, on both sides, and returns the number of connections.
func (p *Proxy) Cut() int { return p.each((*link).cut) }

// HalfOpen resets the server's side of every connection. The client does not notice: its bytes
// are dropped, and it receives nothing. HalfOpen returns the number of connections.
func (p *Proxy) HalfOpen() int { return p.each((*link).halfOpen) }

func (p *Proxy) each(do func(*link)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
	return len(p.links)
}

// CutBefore cuts the next connection on which a client sends the pattern. The server does not
// receive the whole pattern. The channel is closed when the connection was cut.
func (p *Proxy) CutBefore(pattern []byte) <-chan struct{} { return p.addTrap(pattern, true) }

// CutAnswer waits for the next pattern that a client sends, forwards it, waits for the server's answer, and cuts the connection without forwarding the
// answer. So the request is done and the client cannot know. The channel is closed when the connection was cut.
func (p *Proxy) CutAnswer(pattern []byte) <-chan struct{} { return p.addTrap(pattern, false) }

func (p *Proxy) addTrap(pattern []byte, before bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trap{pattern: pattern, before: before, triggered: make(chan struct{})}
	p.traps = append(p.traps, t)
	return t.triggered
}

// Count returns a function that says how often one of the texts was sent since, in either direction. A text that was cut in two is not counted:
// statements and errors are short.
func (p *Proxy) Count(texts ...string) (count func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range texts {
		p.texts = append(p.texts, []byte(text))
	}
	return p.counted.Load
}

// tally counts the texts in a piece.
func (p *Proxy) tally(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.texts {
		p.counted.Add(int64(bytes.Count(b, text)))
	}
}

// MySQLCommit is a pattern: the packet by which go-sql-driver commits a transaction. It is a COM_QUERY of seven bytes with sequence number 0.
var MySQLCommit = []byte("\x07\x00\x00\x00\x03COMMIT")

// PostgresCommit is MySQLCommit of pgx: the message Query of eleven bytes.
var PostgresCommit = []byte("Q\x00\x00\x00\x0bcommit\x00")
