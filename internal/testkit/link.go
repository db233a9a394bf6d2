package testkit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pieceSize is the most bytes that are forwarded at once. It is small enough that a Rate is kept smoothly.
const pieceSize = 16 << 10

// link is one connection of a client, and its connection to the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	once   sync.Once
	done   chan struct{} // is closed when the link is cut

	mu     sync.Mutex
	server *net.TCPConn // nil: not connected yet

	deaf   atomic.Bool          // half-open: bytes of the client are dropped
	answer atomic.Pointer[trap] // the server's next answer triggers this trap
}

// run forwards bytes both ways until both directions have ended.
func (l *link) run(server *net.TCPConn) {
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	select {
	case <-l.done: // cut while the connection to the server was being opened
		reset(server)
	default:
	}
	var down sync.WaitGroup
	down.Go(func() { (&pipe{link: l, from: server, to: l.client, direction: ToClient}).run() })
	(&pipe{link: l, from: l.client, to: server, direction: ToServer}).run()
	down.Wait()
	l.cut()
}

// cut resets both sides.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		reset(l.client)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			reset(l.server)
		}
	})
}

// halfOpen resets only the connection to the server.
func (l *link) halfOpen() {
	l.deaf.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		reset(l.server)
	}
}

// reset closes a connection so that its peer sees a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// pipe is one direction of a link.
type pipe struct {
	*link
	from, to  *net.TCPConn
	direction Direction

	since  chan struct{} // the rules for which passed counts; see Proxy.changed
	passed int           // bytes forwarded since the rules were set
	lost   bool          // bytes were dropped
	tail   []byte        // the end of the last piece, where a pattern may have begun
}

// run forwards pieces until the sender closes its side or the link is broken.
func (p *pipe) run() {
	buffer := make([]byte, pieceSize)
	for {
		n, err := p.from.Read(buffer)
		if n > 0 && !p.piece(buffer[:n]) {
			p.cut()
			return
		}
		switch {
		case err == nil:
		case p.deaf.Load() && p.direction == ToClient:
			return // the client must not notice
		case errors.Is(err, io.EOF):
			_ = p.to.CloseWrite()
			return
		default:
			p.cut()
			return
		}
	}
}

// piece applies the rules to a piece. It returns false if the link is to be cut.
func (p *pipe) piece(b []byte) bool {
	p.proxy.tally(b)
	if p.deaf.Load() {
		return true
	}
	if p.direction == ToServer {
		p.proxy.tick()
	}
	if p.direction == ToClient {
		if t := p.answer.Load(); t != nil {
			p.cut()
			close(t.triggered)
			return false
		}
	} else if !p.watch(b) {
		return false
	}
	rules, ok := p.admit()
	switch {
	case !ok:
		return false
	case rules.Drop:
		p.lost = true
		return true
	case p.lost:
		return false
	}
	wait := rules.Delay
	if rules.Rate > 0 {
		wait += time.Duration(len(b)) * time.Second / time.Duration(rules.Rate)
	}
	if !p.sleep(wait) {
		return false
	}
	whole := rules.CutAfter == 0 || p.passed+len(b) < rules.CutAfter
	if !whole {
		b = b[:rules.CutAfter-p.passed]
	}
	p.passed += len(b)
	if _, err := p.to.Write(b); err != nil {
		return p.deaf.Load() // halfOpen has reset the server's side meanwhile
	}
	return whole
}

// admit waits while the rules hold everything, and then returns the rules. It returns false if the link was cut.
func (p *pipe) admit() (ProxyRules, bool) {
	for {
		p.proxy.mu.Lock()
		rules, changed := p.proxy.rules[p.direction], p.proxy.changed
		p.proxy.mu.Unlock()
		if p.since != changed {
			p.since, p.passed = changed, 0
		}
		if !rules.Hold {
			return rules, true
		}
		select {
		case <-changed:
		case <-p.done:
			return ProxyRules{}, false
		}
	}
}

// sleep waits for d. It returns false if the link was cut.
func (p *pipe) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// watch looks for the patterns of traps in the bytes to the server. It also finds a pattern
// that is spread over pieces. It returns false if the link is to be cut before this piece.
func (p *pipe) watch(b []byte) bool {
	p.proxy.mu.Lock()
	defer p.proxy.mu.Unlock()
	stream := append(p.tail, b...)
	keep := 0
	for i, t := range p.proxy.traps {
		keep = max(keep, len(t.pattern)-1)
		if !bytes.Contains(stream, t.pattern) {
			continue
		}
		p.proxy.traps = append(p.proxy.traps[:i:i], p.proxy.traps[i+1:]...)
		p.tail = nil
		if t.before {
			close(t.triggered)
			return false
		}
		p.answer.Store(t)
		return true
	}
	p.tail = bytes.Clone(stream[max(0, len(stream)-keep):])
	return true
}
