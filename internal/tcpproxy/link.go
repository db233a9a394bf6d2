package tcpproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pieceSize is the most that is passed on at once; small enough that a Rate is
// kept smoothly.
const pieceSize = 16 << 10

// link is one connection of a client, and the one to the server that it leads to.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	once   sync.Once
	done   chan struct{} // closed when it was cut

	mu     sync.Mutex
	server *net.TCPConn // nil: not yet, or not any more

	deaf   atomic.Bool          // half-open: what the client sends is swallowed
	answer atomic.Pointer[trap] // the next answer springs it
}

// run passes bytes both ways until both have ended.
func (l *link) run(server *net.TCPConn) {
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	select {
	case <-l.done: // cut while it was being opened
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

// halfOpen resets the server's side alone.
func (l *link) halfOpen() {
	l.deaf.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		reset(l.server)
	}
}

// reset closes a connection so that the other end sees a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// pipe is one direction of a link.
type pipe struct {
	*link
	from, to  *net.TCPConn
	direction Direction

	since  chan struct{} // the rules that passed belongs to
	passed int           // bytes, since the rules were set
	lost   bool          // something was swallowed
	tail   []byte        // the end of what was passed, in case a pattern began there
}

// run passes pieces on until the sender is done or the link is broken.
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
			return // the client is not to notice
		case errors.Is(err, io.EOF):
			_ = p.to.CloseWrite()
			return
		default:
			p.cut()
			return
		}
	}
}

// piece does with a piece what the rules say; false: the link is to be cut.
func (p *pipe) piece(b []byte) bool {
	if p.deaf.Load() {
		return true
	}
	if p.direction == ToClient {
		if t := p.answer.Load(); t != nil {
			p.cut()
			close(t.sprung)
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
		return p.deaf.Load() // the server's side went while this was on its way
	}
	return whole
}

// admit waits while the rules hold everything, and returns those that do not;
// false: the link was cut.
func (p *pipe) admit() (Rules, bool) {
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
			return Rules{}, false
		}
	}
}

// sleep waits; false: the link was cut.
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

// watch looks for the patterns of traps in what goes to the server, also where
// one is spread over pieces. False: the link is to be cut before this piece.
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
			close(t.sprung)
			return false
		}
		p.answer.Store(t)
		return true
	}
	p.tail = bytes.Clone(stream[max(0, len(stream)-keep):])
	return true
}
