package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// network is the network of one process to the servers. Its connections can be cut, stalled or left half-open, all at once.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	conns   map[*networkConn]bool
	down    bool          // new connections are refused
	stalled chan struct{} // is closed when the stall ends; nil: there is none
	latency time.Duration // each write is delayed by up to so much
	drawn   *rand.Rand    // draws the delays
	damage  atomic.Pointer[damage]
}

func newNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error)) *network {
	return &network{dial: dial, conns: map[*networkConn]bool{}}
}

// errNetworkDown is the error of a dial while the network is cut.
var errNetworkDown = errors.New("chaos: connection refused")

// Dial opens a connection, unless the network is cut.
func (w *network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errNetworkDown}
	}
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	dead, otherEnd := net.Pipe()
	c := &networkConn{Conn: conn, network: w, address: address, dead: dead, otherEnd: otherEnd}
	w.mu.Lock()
	if down = w.down; !down {
		w.conns[c] = true
	}
	w.mu.Unlock()
	if down {
		c.closeAll()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errNetworkDown}
	}
	return c, nil
}

// all returns the open connections.
func (w *network) all() []*networkConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	conns := make([]*networkConn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	return conns
}

// reset closes every connection.
func (w *network) reset() {
	for _, c := range w.all() {
		c.closeAll()
	}
}

// resetTo closes every connection to an address.
func (w *network) resetTo(address string) {
	for _, c := range w.all() {
		if c.address == address {
			c.closeAll()
		}
	}
}

// cut resets every connection and refuses new ones until restore.
func (w *network) cut() {
	w.mu.Lock()
	w.down = true
	w.mu.Unlock()
	w.reset()
}

func (w *network) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// silence leaves every connection half-open: writes are dropped and nothing is ever read. With answersOnly, writes still reach the server.
func (w *network) silence(answersOnly bool) {
	for _, c := range w.all() {
		c.silence(answersOnly)
	}
}

// stall blocks reads and writes until the returned function is called.
func (w *network) stall() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled != nil {
		return func() {}
	}
	until := make(chan struct{})
	w.stalled = until
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalled = nil
		close(until)
	}
}

// slowest is the longest time that brokers may take for an answer.
const slowest = 3 * time.Second

// slowDown delays each write, by a time that is drawn, up to most.
func (w *network) slowDown(most time.Duration, seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency, w.drawn = most, rand.New(rand.NewPCG(seed, 1))
}

// delay returns the delay of the next write.
func (w *network) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latency == 0 {
		return 0
	}
	return time.Duration(w.drawn.Int64N(int64(w.latency)))
}

// wait returns when there is no stall, when the connection is closed or reaches its read deadline, or at until, unless that is zero.
func (w *network) wait(c *networkConn, until time.Time) {
	w.mu.Lock()
	stalled := w.stalled
	w.mu.Unlock()
	if stalled == nil {
		return
	}
	gone := make(chan struct{})
	go func() { // ends when the connection is closed, or at its read deadline
		defer close(gone)
		_, _ = c.dead.Read(make([]byte, 1))
	}()
	var late <-chan time.Time
	if !until.IsZero() {
		late = time.After(time.Until(until))
	}
	select {
	case <-stalled:
	case <-gone:
	case <-late:
	}
}

// networkConn is a connection of a process.
type networkConn struct {
	net.Conn
	network  *network
	address  string      // of the server
	deaf     atomic.Bool // bytes that are read are dropped
	mute     atomic.Bool // bytes that are written are dropped
	dead     net.Conn    // a read from it ends only at the deadline, or when the connection is closed
	otherEnd net.Conn
	once     sync.Once
	writeBy  atomic.Pointer[time.Time] // the write deadline; nil: none was set
}

func (c *networkConn) silence(answersOnly bool) {
	c.mute.Store(!answersOnly)
	if c.deaf.Swap(true) {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now()) // ends a blocked read
	go func() {                            // so that the server never blocks on its answers
		b := make([]byte, 4096)
		for {
			_ = c.Conn.SetReadDeadline(time.Time{})
			if _, err := c.Conn.Read(b); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}()
}

// Read implements net.Conn.
func (c *networkConn) Read(b []byte) (int, error) {
	c.network.wait(c, time.Time{})
	if !c.deaf.Load() {
		n, err := c.Conn.Read(b)
		if d := c.network.damage.Load(); d != nil && c.address != shopAddress {
			d.strike(b[:n])
		}
		if !c.deaf.Load() {
			return n, err
		}
	}
	return c.dead.Read(b)
}

// Write implements net.Conn.
func (c *networkConn) Write(b []byte) (int, error) {
	time.Sleep(c.network.delay())
	if by := c.writeBy.Load(); by == nil {
		c.network.wait(c, time.Time{})
	} else if c.network.wait(c, *by); !by.IsZero() && !time.Now().Before(*by) {
		return 0, os.ErrDeadlineExceeded
	}
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *networkConn) Close() error {
	c.closeAll()
	return nil
}

func (c *networkConn) closeAll() {
	c.once.Do(func() {
		_ = c.Conn.Close()
		_ = c.dead.Close()
		_ = c.otherEnd.Close()
		c.network.mu.Lock()
		defer c.network.mu.Unlock()
		delete(c.network.conns, c)
	})
}

// SetDeadline implements net.Conn.
func (c *networkConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *networkConn) SetWriteDeadline(t time.Time) error {
	c.writeBy.Store(&t)
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *networkConn) SetReadDeadline(t time.Time) error {
	_ = c.dead.SetReadDeadline(t)
	if c.deaf.Load() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}
