package kafka

import (
	"net"
	"sync/atomic"
	"time"
)

// sessionConn is a connection whose SASL session ends: the broker has set connections.max.reauth.ms,
// and closes the connection at the first request after that time. Of a membership that would end the
// group's generation. So sessionConn authenticates again (KIP-368) before the first request in the last
// quarter of the session, or after its end. The connection must have one request in flight at a time.
type sessionConn struct {
	net.Conn
	authenticate func() (session time.Duration, err error)
	renewAt      time.Time   // belongs to the goroutine that writes
	answered     atomic.Bool // something was read since the last write, so the next write begins a request
}

// newSessionConn returns conn itself if its session does not end.
func newSessionConn(conn net.Conn, session time.Duration, authenticate func() (time.Duration, error)) net.Conn {
	if session <= 0 {
		return conn
	}
	return &sessionConn{Conn: conn, authenticate: authenticate, renewAt: time.Now().Add(session * 3 / 4)}
}

// Read implements net.Conn.
func (c *sessionConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *sessionConn) Write(p []byte) (int, error) {
	if c.answered.Swap(false) && time.Now().After(c.renewAt) {
		defer time.AfterFunc(connectTimeout, func() { c.Conn.Close() }).Stop()
		session, err := c.authenticate()
		if err != nil {
			c.Conn.Close()
			return 0, err
		}
		c.renewAt = time.Now().Add(session * 3 / 4)
	}
	return c.Conn.Write(p)
}
