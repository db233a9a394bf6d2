package testkit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back and records what it receives.
type echo struct {
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	got      bytes.Buffer
	ends     []error // the last errors of its connections
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	e := &echo{listener: l}
	e.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.running.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		e.running.Wait()
	})
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	b := make([]byte, 1000)
	for {
		n, err := c.Read(b)
		e.mu.Lock()
		e.got.Write(b[:n])
		if err != nil {
			e.ends = append(e.ends, err)
		}
		e.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got.String()
}

// client is a connection through the proxy.
type client struct {
	*testing.T
	net.Conn
}

func newPair(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	e := newEcho(t)
	p := must.Get(NewProxy(e.listener.Addr().String()))(t)
	t.Cleanup(func() {
		expect.NoError(t, p.Close())
	})
	return p, e
}

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	c := must.Get(net.Dial("tcp", p.Addr()))(t)
	t.Cleanup(func() { c.Close() })
	return client{t, c}
}

func (c client) send(text string) {
	c.Helper()
	_, err := c.Write([]byte(text))
	must.That(c, err == nil, "%v", err)
}

// expect requires that the client receives text within ten seconds.
func (c client) expect(text string) {
	c.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	must.That(c, err == nil && string(b) == text, "received %q, %v; want %q", b, err, text)
}

func (c client) exchange(text string) {
	c.Helper()
	c.send(text)
	c.expect(text)
}

// broken requires a reset.
func (c client) broken() {
	c.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := c.Read(make([]byte, 100))
	must.That(c, errors.Is(err, syscall.ECONNRESET), "read %d, %v; want a reset", n, err)
}

// refused requires that a new connection is reset, perhaps while it is being opened.
func refused(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		client{t, c}.broken()
		c.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

// silent requires that the client receives nothing and that the connection stays open.
func (c client) silent() {
	c.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := c.Read(make([]byte, 100))
	must.That(c, errors.Is(err, os.ErrDeadlineExceeded), "read %d, %v; want neither data nor an error", n, err)
}

func TestProxy_CutBreaksPresentAndRefuseFutureConnections(t *testing.T) {
	p, _ := newPair(t)
	a, b := dial(t, p), dial(t, p)
	a.exchange("a")
	b.exchange("b")
	expect.Equal(t, p.Cut(), 2, "cut")
	a.broken()
	b.broken()
	dial(t, p).exchange("c")
	p.Refuse()
	refused(t, p)
	p.Heal()
	dial(t, p).exchange("d")
}

func TestProxy_StallAcceptsConnectionsAndLosesNothing(t *testing.T) {
	p, e := newPair(t)
	a := dial(t, p)
	a.exchange("before")
	p.Stall()
	b := dial(t, p)
	a.send("while")
	b.send("new")
	a.silent()
	b.silent()
	got := e.received()
	expect.That(t, got == "before", "the server got %q", got)
	p.Heal()
	a.expect("while")
	b.expect("new")
}

func TestProxy_DropDiscardsBytesAndLaterCutsTheConnection(t *testing.T) {
	p, e := newPair(t)
	a, b := dial(t, p), dial(t, p)
	a.exchange("a")
	b.exchange("b")
	p.Set(ToClient, ProxyRules{Drop: true})
	a.send("lost")
	a.silent()
	p.Heal()
	b.exchange("unharmed")
	a.send("more")
	a.broken()
	got := e.received()
	expect.That(t, bytes.Contains([]byte(got), []byte("lost")), "the server got %q; only answers were to be dropped", got)
}

func TestProxy_HalfOpenResetsOnlyTheServerSide(t *testing.T) {
	p, e := newPair(t)
	a := dial(t, p)
	a.exchange("a")
	expect.Equal(t, p.HalfOpen(), 1, "half open")
	a.send("dropped")
	a.silent()
	dial(t, p).exchange("b")
	got := e.received()
	expect.That(t, got == "ab", "the server got %q", got)
	e.mu.Lock()
	defer e.mu.Unlock()
	expect.That(t, len(e.ends) == 1 && errors.Is(e.ends[0], syscall.ECONNRESET), "the server saw %v; want one reset", e.ends)
}

func TestProxy_CutAfterCountsBytes(t *testing.T) {
	p, e := newPair(t)
	p.Set(ToServer, ProxyRules{CutAfter: 5})
	c := dial(t, p)
	c.exchange("123")
	c.send("4567")
	for i := 0; len(e.received()) < 5 && i < 1000; i++ {
		<-time.After(time.Millisecond)
	}
	got := e.received()
	expect.That(t, got == "12345", "the server got %q, want five bytes", got)
}

func TestProxy_DelayAndRateSlowDown(t *testing.T) {
	p, _ := newPair(t)
	c := dial(t, p)
	for name, rules := range map[string]ProxyRules{"delay": {Delay: 20 * time.Millisecond}, "rate": {Rate: 1000}} {
		p.Set(ToServer, rules)
		p.Set(ToClient, rules)
		began := time.Now()
		c.exchange("twenty bytes or more")
		took := time.Since(began)
		expect.That(t, took >= 40*time.Millisecond, "%s: the round trip took %v", name, took)
	}
}

func TestProxy_CutBeforeKeepsThePatternFromTheServer(t *testing.T) {
	p, e := newPair(t)
	a, b := dial(t, p), dial(t, p)
	triggered := p.CutBefore([]byte("COMMIT"))
	a.exchange("some COM")
	b.exchange("MIT") // of another connection
	a.send("MIT")
	a.broken()
	<-triggered
	b.exchange(" COMMIT") // a trap triggers once
	got := e.received()
	expect.That(t, got == "some COMMIT COMMIT", "the server got %q; the first MIT must be that of b", got)
}

func TestProxy_CutAnswerLosesOnlyTheAnswer(t *testing.T) {
	p, e := newPair(t)
	a := dial(t, p)
	triggered := p.CutAnswer([]byte("COMMIT"))
	a.exchange("some")
	a.send(" COMMIT")
	a.broken()
	<-triggered
	got := e.received()
	expect.That(t, got == "some COMMIT", "the server got %q", got)
	p.CutAnswer([]byte("COMMIT"))
	p.Heal()
	dial(t, p).exchange("COMMIT")
}
