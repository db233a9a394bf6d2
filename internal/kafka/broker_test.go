package kafka

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// silent is the address of a broker that accepts connections and never answers.
const silent = "silent:9092"

// broker is an embedded Kafka on a virtual network, for tests with synctest.
type broker struct {
	*kfake.Cluster
	t       *testing.T
	net     kfake.VirtualNetwork
	log     *testkit.LogBuffer
	dialled atomic.Int64 // connections to the silent or the hung broker
	cut     atomic.Int64 // connections with a lower number lose what is written
	dials   atomic.Int64 // connections to brokers that answer
	slow    atomic.Int64 // delay of each answer, in nanoseconds
	hung    atomic.Value // the address of a broker that does not answer any more
}

func newBroker(t *testing.T, opts ...kfake.Opt) *broker {
	b := &broker{t: t, log: &testkit.LogBuffer{}}
	b.Cluster = must.Get(kfake.NewCluster(append([]kfake.Opt{kfake.ListenFn(b.net.Listen), kfake.Ports(9092),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})}, opts...)...))(t)
	t.Cleanup(b.Close)
	return b
}

// cluster returns a client. It logs to b.log.
func (b *broker) cluster(o Options) *Cluster {
	if o.Brokers == nil {
		o.Brokers = b.ListenAddrs()
	}
	o.Dial, o.Logger = b.dial, slog.New(slog.NewTextHandler(b.log, nil))
	c := must.Get(New(o))(b.t)
	b.t.Cleanup(c.Close)
	return c
}

func (b *broker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address == silent || address == b.hung.Load() {
		b.dialled.Add(1)
		server, client := net.Pipe()
		go io.Copy(io.Discard, server)
		return client, nil
	}
	conn, err := b.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &observedConn{Conn: conn, b: b, number: b.dials.Add(1), broker: address, closed: make(chan struct{})}, nil
}

// halfOpen makes all present connections drop what is written, without an error.
func (b *broker) halfOpen() { b.cut.Store(b.dials.Load() + 1) }

// observedConn is a connection to a broker.
type observedConn struct {
	net.Conn
	b        *broker
	number   int64
	broker   string
	asked    atomic.Bool  // something was written, and nothing has been read since
	deadline atomic.Int64 // of reads, in nanoseconds since 1970
	closed   chan struct{}
	once     sync.Once
}

// Close implements net.Conn.
func (c *observedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *observedConn) SetDeadline(at time.Time) error {
	c.deadline.Store(at.UnixNano())
	return c.Conn.SetDeadline(at)
}

// Write implements net.Conn.
func (c *observedConn) Write(p []byte) (int, error) {
	c.asked.Store(true)
	if c.number < c.b.cut.Load() || c.broker == c.b.hung.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Read implements net.Conn. An answer is slow once, in however many parts it is read.
func (c *observedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if slow := time.Duration(c.b.slow.Load()); slow > 0 && n > 0 && c.asked.Swap(false) {
		select {
		case <-time.After(min(slow, time.Until(time.Unix(0, c.deadline.Load())))):
		case <-c.closed:
			return 0, net.ErrClosed
		}
		if time.Now().UnixNano() >= c.deadline.Load() {
			return 0, os.ErrDeadlineExceeded
		}
	}
	return n, err
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// position returns the offset that a group has committed for partition 0 of the topic t; negative: none.
func position(ctx context.Context, c *Cluster, group string) (int64, error) {
	commits, err := c.Commits(ctx, group, "t", 1)
	if err != nil {
		return -1, err
	}
	return commits[0].Offset, nil
}
