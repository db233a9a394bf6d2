package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// connectTries bounds how many brokers are tried for a connection to any broker.
	connectTries = 3
	// idleTimeout keeps connections open while there is no traffic, so that the next burst does
	// not begin with new connections. Brokers close theirs after 10 minutes by default.
	idleTimeout = 9 * time.Minute
	// hangTimeout is how long a broker must be silent, on all connections, before a request
	// without an answer shows that the broker hangs. It is longer than a fetch waits, which is
	// 2 s at most.
	hangTimeout = 3 * time.Second
)

// anyBroker is the address of a request that any broker can answer.
const anyBroker = ""

// brokers are the brokers of a cluster and the connections to them. A request uses an idle
// connection to its broker, or a new one.
type brokers struct {
	connector
	named    []string                 // host:port, from Options
	reported atomic.Pointer[[]string] // the brokers in the cluster's last answer; nil: none yet
	next     atomic.Uint64            // candidates()[next % len] is tried first for any broker

	mu        sync.Mutex
	byAddress map[string]*brokerConns
	closed    bool
}

// brokerConns are the connections to a broker under one of its addresses. A broker's process may
// hang while its kernel keeps the connections open. Each of dozens of idle connections would cost a
// request its deadline. So when a broker hangs, all its connections are closed at once.
type brokerConns struct {
	address string
	heard   atomic.Int64       // when the broker last sent something; see sinceStart
	open    map[*conn]struct{} // all connections; brokers.mu guards it
	idle    []*conn            // those without a request, the last one used last; brokers.mu guards it
}

func newBrokers(named []string, c connector) *brokers {
	b := &brokers{connector: c, named: named, byAddress: map[string]*brokerConns{}}
	b.next.Store(rand.Uint64N(uint64(len(named))))
	return b
}

var start = time.Now()

// sinceStart returns the present by the monotonic clock, in nanoseconds since start.
func sinceStart() int64 { return int64(time.Since(start)) }

// heardConn notes when a broker sends something.
type heardConn struct {
	net.Conn
	from *brokerConns
}

// Read implements net.Conn.
func (c heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.from.heard.Store(sinceStart())
	}
	return n, err
}

// candidates returns the brokers to try: those of Options, and those that the cluster has
// reported. A process may run for longer than every broker that Options names.
func (b *brokers) candidates() []string {
	all := b.named[:len(b.named):len(b.named)]
	if reported := b.reported.Load(); reported != nil {
		for _, address := range *reported {
			if !slices.Contains(b.named, address) {
				all = append(all, address)
			}
		}
	}
	return all
}

// learn stores the brokers that the cluster reports.
func (b *brokers) learn(reported []kmsg.MetadataResponseBroker) {
	addresses := make([]string, len(reported))
	for i, r := range reported {
		addresses[i] = addressOf(r.Host, r.Port)
	}
	if len(addresses) > 0 {
		b.reported.Store(&addresses)
	}
}

// skip makes the next request to any broker begin with another broker than the address.
func (b *brokers) skip(address string) {
	at, all := b.next.Load(), b.candidates()
	if all[at%uint64(len(all))] == address {
		b.next.CompareAndSwap(at, at+1)
	}
}

// exchange sends a request to the broker at an address and returns its answer, or an error when
// ctx ends. It repeats nothing.
func (b *brokers) exchange(ctx context.Context, address string, req kafka.Request) (kafka.Response, error) {
	c, err := b.take(ctx, address)
	if err != nil {
		return nil, err
	}
	sent, stop := sinceStart(), interruptAfter(ctx, c)
	res, err := c.exchange(ctx, req)
	ended := !stop()
	if ended && err != nil {
		err = ctx.Err()
	}
	b.release(c, sent, ended, err)
	return res, err
}

// take returns a connection to the broker at an address. For any broker it tries up to three.
func (b *brokers) take(ctx context.Context, address string) (*conn, error) {
	if address != anyBroker {
		return b.connection(ctx, address)
	}
	all := b.candidates()
	for tries := min(len(all), connectTries); ; tries-- {
		at := b.next.Load()
		c, err := b.connection(ctx, all[at%uint64(len(all))])
		if err == nil {
			return c, nil
		}
		b.next.CompareAndSwap(at, at+1) // later requests begin with the next broker //mutant:silent-broker-first
		end, ends := ctx.Deadline()
		if tries <= 1 || ctx.Err() != nil || ends && !time.Now().Before(end) {
			return nil, err
		}
	}
}

// connection returns an idle connection, or opens one.
func (b *brokers) connection(ctx context.Context, address string) (*conn, error) {
	b.mu.Lock()
	to := b.byAddress[address]
	if to == nil {
		to = &brokerConns{address: address, open: map[*conn]struct{}{}}
		b.byAddress[address] = to
	}
	for _, of := range b.byAddress { // also brokers that get no more requests
		of.closeOld()
	}
	if n := len(to.idle); n > 0 {
		c := to.idle[n-1]
		to.idle = to.idle[:n-1]
		b.mu.Unlock()
		return c, nil
	}
	b.mu.Unlock()
	c, err := b.connector.open(ctx, to)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	to.open[c] = struct{}{}
	return c, nil
}

// release takes back a connection after a request that was sent at the given time. ended says
// that the request's context has ended.
func (b *brokers) release(c *conn, sent int64, ended bool, err error) {
	of := c.broker
	silent := of.heard.Load() <= sent && time.Duration(sinceStart()-sent) >= hangTimeout
	hangs := false
	defer func() { // after the lock is given back: a log may block
		if hangs {
			b.log.Warn("broker does not answer, closing its connections", "broker", of.address, "silent", hangTimeout)
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	_, open := of.open[c]
	switch {
	case !open: // closed already
	case errors.Is(err, context.DeadlineExceeded) && silent:
		hangs = true
		b.skip(of.address) //mutant:idle-connection-deadlines
		of.closeAll()      //mutant:idle-connection-deadlines
	case ended:
		of.close(c)
	case err != nil && !errors.Is(err, errNotOffered): // the idle connections are most likely broken, too
		of.close(c)
		for _, c := range of.idle {
			of.close(c)
		}
		of.idle = nil
	default:
		c.used = sinceStart()
		of.idle = append(of.idle, c)
	}
}

// closeOld closes the connections that have been idle for idleTimeout. The caller holds brokers.mu.
func (of *brokerConns) closeOld() {
	for len(of.idle) > 0 && sinceStart()-of.idle[0].used >= int64(idleTimeout) {
		of.close(of.idle[0])
		of.idle = of.idle[1:]
	}
}

// close closes a connection. The caller holds brokers.mu.
func (of *brokerConns) close(c *conn) {
	delete(of.open, c)
	c.Close()
}

// closeAll closes all connections to a broker. The caller holds brokers.mu.
func (of *brokerConns) closeAll() {
	for c := range of.open {
		of.close(c)
	}
	of.idle = nil
}

// close closes all connections. Requests in flight fail.
func (b *brokers) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, of := range b.byAddress {
		of.closeAll()
	}
}
