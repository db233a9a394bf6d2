package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"orderclose"
	"orderclose/internal/store"
)

// cut is a network whose connections can break around the next COMMIT.
type cut struct {
	when atomic.Int32
	down atomic.Bool // new connections are refused, from the cut on
	stay atomic.Bool // the cut takes the network down
}

const (
	never int32 = iota
	beforeCommit
	afterCommit // the server gets it, the answer is lost
)

func (c *cut) dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.down.Load() {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	cut *cut
}

func (c *cutConn) Write(b []byte) (int, error) {
	if !bytes.HasSuffix(b, []byte("\x03COMMIT")) { // the statement by itself
		return c.Conn.Write(b)
	}
	when := c.cut.when.Swap(never)
	if when != never && c.cut.stay.Load() {
		c.cut.down.Store(true)
	}
	if when == beforeCommit {
		_ = c.Close()
	}
	n, err := c.Conn.Write(b)
	if when == afterCommit {
		_, _ = c.Read(make([]byte, 1)) // it has answered, so it is done
		_ = c.Close()
	}
	return n, err
}

// Whichever side of the commit the connection broke on, it is read again what
// became of it: the order was closed by this call, once.
func TestMySQL_CommitWithoutAnswerIsReadAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		when int32
	}{{"before", beforeCommit}, {"after", afterCommit}} {
		t.Run(c.name, func(t *testing.T) {
			s, network := openCut(t)
			overdue(t, s, "a")
			network.when.Store(c.when)
			ask := []orderclose.CloseRequest{{OrderID: "a"}}
			out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			if err != nil || out[0].Verdict != orderclose.Closed || out[0].At.Before(out[0].Due) {
				t.Errorf("closing: %+v, %v; want it closed", out, err)
			}
			out, err = s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			if err != nil || out[0].Verdict != orderclose.AlreadyClosed {
				t.Errorf("asked again: %+v, %v; want it closed before", out, err)
			}
			var stock, receipts int
			must(t, s.DB().QueryRowContext(t.Context(), "SELECT available, (SELECT COUNT(*) FROM receipts) FROM stock").Scan(&stock, &receipts))
			if stock != 1000 || receipts != 1 {
				t.Errorf("%d in stock and %d receipts; want 1000 and 1", stock, receipts)
			}
		})
	}
}

// openCut opens a database of its own on a network that can break.
func openCut(t *testing.T) (*store.Store, *cut) {
	t.Helper()
	cfg, err := mysql.ParseDSN(ownDatabase(t))
	must(t, err)
	network := new(cut)
	cfg.Net = strings.ToLower(rand.Text())
	mysql.RegisterDialContext(cfg.Net, network.dial)
	t.Cleanup(func() { mysql.DeregisterDialContext(cfg.Net) })
	return openMigrated(t, store.Options{DSN: cfg.FormatDSN(), MaxOpenConns: 1}), network
}

// While the database is away it is not known what became of the commit; the next
// call that reaches it finds out, and nobody else is told that they closed it.
func TestMySQL_CommitWithoutAnswerIsReadOnceTheDatabaseIsBack(t *testing.T) {
	s, network := openCut(t)
	overdue(t, s, "a")
	overdue(t, s, "b")
	network.stay.Store(true)
	network.when.Store(afterCommit)
	ask := []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "b"}}
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
	wantError(t, err, orderclose.ErrUnavailable)
	network.down.Store(false)
	for _, want := range []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyClosed} {
		for i := range ask {
			out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask[i:i+1])
			if err != nil || out[0].Verdict != want {
				t.Errorf("asked again: %+v, %v; want %s", out, err, want)
			}
		}
	}
}
