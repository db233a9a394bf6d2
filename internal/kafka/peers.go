package kafka

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

// silentFor is how long nothing must have been heard from a broker, on any connection,
// before a request that is not answered in time shows that the broker hangs. Fetches wait
// for 2 s at most.
const silentFor = 3 * time.Second

// errUnsent says that nothing of a request was sent: its connection had been closed
// because its broker hangs.
var errUnsent = errors.New("the broker hung, and its connections were closed")

// peers are the brokers that this process has connections to, by address. The process of
// a broker may hang while its kernel keeps the connections alive. The client library keeps
// dozens of idle ones, and each would cost a request its deadline before it is closed.
// So when a broker hangs, all its connections are closed at once.
type peers struct {
	mu  sync.Mutex
	all map[string]*peer
}

// peer is a broker, by one of its addresses.
type peer struct {
	address string
	hangs   func(address string) // is called when the broker is found to hang
	heard   atomic.Int64         // when it sent something last; see sinceStart

	mu    sync.Mutex
	conns map[*peerConn]struct{} // that are open
}

var start = time.Now()

// sinceStart is a moment by the monotonic clock.
func sinceStart() int64 { return int64(time.Since(start)) }

// join returns the connection as one of the broker at the address. hangs is called when
// the broker is found to hang.
func (p *peers) join(conn net.Conn, address string, hangs func(address string)) net.Conn {
	p.mu.Lock()
	broker := p.all[address]
	if broker == nil {
		broker = &peer{address: address, hangs: hangs, conns: map[*peerConn]struct{}{}}
		if p.all == nil {
			p.all = map[string]*peer{}
		}
		p.all[address] = broker
	}
	p.mu.Unlock()
	c := &peerConn{Conn: conn, broker: broker}
	broker.mu.Lock()
	defer broker.mu.Unlock()
	broker.conns[c] = struct{}{}
	return c
}

// unanswered notes that what was sent at the given time was not answered before its
// deadline. If the broker has said nothing since, for silentFor, it hangs.
func (b *peer) unanswered(sent int64) {
	if b.heard.Load() > sent || time.Duration(sinceStart()-sent) < silentFor {
		return
	}
	b.mu.Lock()
	conns := b.conns
	b.conns = map[*peerConn]struct{}{}
	b.mu.Unlock()
	for c := range conns {
		c.hung.Store(true)
		c.Conn.Close()
	}
	b.hangs(b.address)
}

// peerConn is a connection to a broker.
type peerConn struct {
	net.Conn
	broker *peer
	sent   atomic.Int64 // when something was written last
	hung   atomic.Bool  // it was closed because the broker hangs
}

// Read implements net.Conn.
func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		c.broker.heard.Store(sinceStart())
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.broker.unanswered(c.sent.Load())
	}
	return n, err
}

// Write implements net.Conn.
func (c *peerConn) Write(p []byte) (int, error) {
	if c.hung.Load() {
		return 0, errUnsent
	}
	c.sent.Store(sinceStart())
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.broker.mu.Lock()
	delete(c.broker.conns, c)
	c.broker.mu.Unlock()
	return c.Conn.Close()
}

// hangs has the next connection to any broker begin at another one.
func (c *connector) hangs(address string) {
	c.log.Warn("a Kafka broker does not answer: its connections are closed", "broker", address, "silent", silentFor)
	at, all := c.next.Load(), c.all()
	if all[at%uint64(len(all))] == address {
		c.next.CompareAndSwap(at, at+1)
	}
}

// send sends a request by the client library. It takes another connection as long as it
// gets those that were closed because their broker hung.
func (t *transport) send(ctx context.Context, addr net.Addr, req kafka.Request) (res kafka.Response, err error) {
	for {
		res, err = t.Transport.RoundTrip(ctx, addr, req)
		if !errors.Is(err, errUnsent) || ctx.Err() != nil {
			return res, err
		}
	}
}
