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

// hangTimeout is how long a broker must be silent, on all connections, before a request
// without an answer shows that the broker hangs. It is longer than a fetch waits, which is
// 2 s at most.
const hangTimeout = 3 * time.Second

// errConnectionClosed means that a request was not sent, because its connection had been closed
// after the broker hung.
var errConnectionClosed = errors.New("the broker hung, and its connections were closed")

// peers are the brokers that this process has connections to, by address. A broker's process
// may hang while its kernel keeps the connections open. The client library keeps dozens of
// idle connections, and each of them would cost a request its deadline before it is closed.
// So when a broker hangs, all its connections are closed at once.
type peers struct {
	mu  sync.Mutex
	all map[string]*peer
}

// peer is a broker under one of its addresses.
type peer struct {
	address string
	onHang  func(address string) // is called when the broker is found to hang
	heard   atomic.Int64         // when the broker last sent something; see sinceStart

	mu    sync.Mutex
	conns map[*peerConn]struct{} // the open connections
}

var start = time.Now()

// sinceStart returns the present by the monotonic clock, in nanoseconds since start.
func sinceStart() int64 { return int64(time.Since(start)) }

// join adds a connection to the broker at the address, and returns it wrapped. onHang is
// called when the broker is found to hang.
func (p *peers) join(conn net.Conn, address string, onHang func(address string)) net.Conn {
	p.mu.Lock()
	broker := p.all[address]
	if broker == nil {
		broker = &peer{address: address, onHang: onHang, conns: map[*peerConn]struct{}{}}
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

// unanswered is called when data that was written at the given time was not answered before
// its deadline. If the broker has sent nothing since, for hangTimeout, it hangs.
func (b *peer) unanswered(sent int64) {
	if b.heard.Load() > sent || time.Duration(sinceStart()-sent) < hangTimeout {
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
	b.onHang(b.address)
}

// peerConn is a connection to a broker.
type peerConn struct {
	net.Conn
	broker *peer
	sent   atomic.Int64 // when something was last written
	hung   atomic.Bool  // the connection was closed because the broker hangs
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
		return 0, errConnectionClosed
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

// brokerHangs logs a broker that hangs, and makes the next connection to any broker begin
// with another broker.
func (c *connector) brokerHangs(address string) {
	c.log.Warn("broker does not answer, closing its connections", "broker", address, "silent", hangTimeout)
	at, all := c.next.Load(), c.all()
	if all[at%uint64(len(all))] == address {
		c.next.CompareAndSwap(at, at+1)
	}
}

// send sends a request through the client library. It retries as long as the library picks
// a connection that was closed because its broker hung.
func (t *transport) send(ctx context.Context, addr net.Addr, req kafka.Request) (res kafka.Response, err error) {
	for {
		res, err = t.Transport.RoundTrip(ctx, addr, req)
		if !errors.Is(err, errConnectionClosed) || ctx.Err() != nil {
			return res, err
		}
	}
}
