package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// connectTries bounds how many brokers are tried for a connection to any broker.
	connectTries = 3
	// idleTimeout keeps connections open while there is no traffic, so that the next burst does
	// not begin with new connections. Brokers close theirs after 10 minutes by default.
	idleTimeout = 9 * time.Minute
)

// anyBroker is the address of a request that any broker can answer.
const anyBroker = ""

// brokers are the brokers of a cluster and the connections to them. A request uses an idle connection to its broker, or a new
// one. If its caller gives up before the broker answers, the connection stays until the answer has come or is overdue.
type brokers struct {
	connector
	end      context.CancelFunc       // ends connector.lifetime
	named    []string                 // host:port, from Options
	reported atomic.Pointer[[]string] // the brokers in the cluster's last answer; nil: none yet
	next     atomic.Uint64            // candidates()[next % len] is tried first for any broker

	mu        sync.Mutex
	byAddress map[string]*brokerConns
	closed    bool
}

// brokerConns are the connections to a broker under one of its addresses. A broker's process may hang while its kernel keeps the
// connections open. Each of dozens of idle connections would cost a request its deadline. So when a broker hangs, its idle
// connections are closed at once. brokers.mu guards all fields but address and the atomic ones.
type brokerConns struct {
	address string
	heard   atomic.Int64       // when the broker last sent something; see sinceStart
	quota   atomic.Int64       // when a quota of the broker was logged last; see sinceStart. 0: never
	open    map[*conn]struct{} // all connections
	idle    []*conn            // those without a request, the last one used last
	opening int                // how many connections are being opened: at least one for each request in waiting
	waiting []chan opened      // requests without a connection, the first one first
}

// opened is a connection for a request, or why there is none.
type opened struct {
	conn *conn
	err  error
}

func newBrokers(named []string, c connector) *brokers {
	b := &brokers{connector: c, named: named, byAddress: map[string]*brokerConns{}}
	b.lifetime, b.end = context.WithCancel(context.Background())
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

// skip makes the next request to any broker begin with a broker that has none of the addresses, if there is one.
func (b *brokers) skip(addresses ...string) {
	all := b.candidates()
	for range all {
		at := b.next.Load()
		if !slices.Contains(addresses, all[at%uint64(len(all))]) {
			return
		}
		b.next.CompareAndSwap(at, at+1)
	}
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

// connection returns an idle connection, or waits until one is opened. A connection that is opened too late for
// its request is there for the next one: a login at a slow broker may take longer than any request waits.
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
	turn := make(chan opened, 1)
	if to.waiting = append(to.waiting, turn); to.opening < len(to.waiting) {
		to.opening++
		go b.open(to)
	}
	b.mu.Unlock()
	select {
	case o := <-turn:
		return o.conn, o.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(to.waiting, turn); i >= 0 {
		to.waiting = slices.Delete(to.waiting, i, i+1)
	} else if o := <-turn; o.err == nil { // it came at the same moment
		to.give(o)
	}
	return nil, ctx.Err()
}

// open opens a connection to a broker, for the request that has waited longest.
func (b *brokers) open(to *brokerConns) {
	c, err := b.connector.open(to)
	b.mu.Lock()
	defer b.mu.Unlock()
	to.opening--
	switch {
	case err == nil && b.closed:
		c.Close()
		err = net.ErrClosed
	case err == nil:
		to.open[c] = struct{}{}
	}
	to.give(opened{c, err})
}

// give gives a connection, or the error of one that was not opened, to the request that has waited longest. Without such a request
// the connection is idle. The caller holds brokers.mu.
func (of *brokerConns) give(o opened) {
	if len(of.waiting) > 0 {
		of.waiting[0] <- o
		of.waiting = of.waiting[1:]
	} else if o.err == nil {
		o.conn.used = sinceStart()
		of.idle = append(of.idle, o.conn)
	}
}

// release takes back a connection after a request that was sent at the given time.
func (b *brokers) release(c *conn, sent int64, err error) {
	of, late := c.broker, errors.Is(err, os.ErrDeadlineExceeded)
	hangs := late && of.heard.Load() <= sent // the broker was silent on all connections
	b.mu.Lock()
	_, open := of.open[c]
	switch {
	case !open:
		hangs = false // closed already
	case err == nil, errors.Is(err, errNotOffered):
		of.give(opened{conn: c})
	case late && !hangs:
		of.close(c)
	default: // the idle connections are most likely broken, too
		of.close(c)
		for _, c := range of.idle { //mutant:idle-connection-deadlines
			of.close(c)
		}
		of.idle = nil //mutant:idle-connection-deadlines
		if hangs {
			b.skip(of.address) //mutant:idle-connection-deadlines
		}
	}
	b.mu.Unlock()
	if hangs { // a log may block
		b.log.Warn("broker does not answer, closing its idle connections", "broker", of.address, "silent", requestTimeout)
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

// close closes all connections. Requests in flight fail.
func (b *brokers) close() {
	b.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, of := range b.byAddress {
		for c := range of.open {
			of.close(c)
		}
		of.idle = nil
	}
}
