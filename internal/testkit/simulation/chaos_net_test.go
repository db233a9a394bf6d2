package simulation

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// way is the network of one process to the servers. Its connections can be cut, stalled or left
// half-open, all at once.
type way struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	conns   map[*wayConn]bool
	down    bool          // new connections are refused
	stalled chan struct{} // is closed when the stall ends; nil: there is none
	latency atomic.Int64  // delay of each write, in nanoseconds
	damage  atomic.Pointer[damage]
}

func newWay(dial func(ctx context.Context, network, address string) (net.Conn, error)) *way {
	return &way{dial: dial, conns: map[*wayConn]bool{}}
}

// errWayDown is the error of a dial while the network is cut.
var errWayDown = errors.New("chaos: connection refused")

// Dial opens a connection, unless the network is cut.
func (w *way) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errWayDown}
	}
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	dead, otherEnd := net.Pipe()
	c := &wayConn{Conn: conn, way: w, address: address, dead: dead, otherEnd: otherEnd}
	w.mu.Lock()
	if down = w.down; !down {
		w.conns[c] = true
	}
	w.mu.Unlock()
	if down {
		c.closeAll()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errWayDown}
	}
	return c, nil
}

// all returns the open connections.
func (w *way) all() []*wayConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	conns := make([]*wayConn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	return conns
}

// reset closes every connection.
func (w *way) reset() {
	for _, c := range w.all() {
		c.closeAll()
	}
}

// resetTo closes every connection to an address.
func (w *way) resetTo(address string) {
	for _, c := range w.all() {
		if c.address == address {
			c.closeAll()
		}
	}
}

// cut resets every connection and refuses new ones until restore.
func (w *way) cut() {
	w.mu.Lock()
	w.down = true
	w.mu.Unlock()
	w.reset()
}

func (w *way) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// silence leaves every connection half-open: writes are dropped and nothing is ever read. With
// answersOnly, writes still reach the server.
func (w *way) silence(answersOnly bool) {
	for _, c := range w.all() {
		c.silence(answersOnly)
	}
}

// stall blocks reads and writes until the returned function is called.
func (w *way) stall() (resume func()) {
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

// wait returns when there is no stall, or when the connection is closed.
func (w *way) wait(c *wayConn) {
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
	select {
	case <-stalled:
	case <-gone:
	}
}

// wayConn is a connection of a process.
type wayConn struct {
	net.Conn
	way      *way
	address  string      // of the server
	deaf     atomic.Bool // bytes that are read are dropped
	mute     atomic.Bool // bytes that are written are dropped
	dead     net.Conn    // a read from it ends only at the deadline, or when the connection is closed
	otherEnd net.Conn
	once     sync.Once
}

func (c *wayConn) silence(answersOnly bool) {
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
func (c *wayConn) Read(b []byte) (int, error) {
	c.way.wait(c)
	if !c.deaf.Load() {
		n, err := c.Conn.Read(b)
		if d := c.way.damage.Load(); d != nil && c.address != shopAddress {
			d.strike(b[:n])
		}
		if !c.deaf.Load() {
			return n, err
		}
	}
	return c.dead.Read(b)
}

// Write implements net.Conn.
func (c *wayConn) Write(b []byte) (int, error) {
	if d := c.way.latency.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	c.way.wait(c)
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *wayConn) Close() error {
	c.closeAll()
	return nil
}

func (c *wayConn) closeAll() {
	c.once.Do(func() {
		_ = c.Conn.Close()
		_ = c.dead.Close()
		_ = c.otherEnd.Close()
		c.way.mu.Lock()
		defer c.way.mu.Unlock()
		delete(c.way.conns, c)
	})
}

// SetDeadline implements net.Conn.
func (c *wayConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *wayConn) SetReadDeadline(t time.Time) error {
	_ = c.dead.SetReadDeadline(t)
	if c.deaf.Load() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}
