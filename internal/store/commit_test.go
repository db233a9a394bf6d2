package store_test

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMySQL_ACommitInDoubtIsResolvedAtOnce(t *testing.T) {
	eachServer(t, commitInDoubtIsResolvedAtOnce)
}

// Whether the connection breaks before or after the commit, the store reads the result: this
// call closed the order, once.
func commitInDoubtIsResolvedAtOnce(t *testing.T) {
	for name, cut := range map[string]func(*testkit.Proxy, []byte) <-chan struct{}{
		"before": (*testkit.Proxy).CutBefore, "after": (*testkit.Proxy).CutAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			proxy, dsn := throughProxy(t, migratedDatabase(t))
			s := openMigrated(t, store.Options{DSN: dsn})
			overdue(t, s, "a")

			broken := cut(proxy, testkit.MySQLCommit)
			ask := []orderclose.CloseRequest{{OrderID: "a"}}
			out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			if err != nil || out[0].Verdict != orderclose.Closed || out[0].At.Before(out[0].Due) {
				t.Errorf("closing: %+v, %v; want it closed", out, err)
			}
			<-broken
			out, err = s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			if err != nil || out[0].Verdict != orderclose.AlreadyClosed {
				t.Errorf("asked again: %+v, %v; want it closed before", out, err)
			}
			var stock, receipts int
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT available, (SELECT COUNT(*) FROM receipts) FROM stock").Scan(&stock, &receipts))
			if stock != 1000 || receipts != 1 {
				t.Errorf("%d in stock and %d receipts; want 1000 and 1", stock, receipts)
			}
		})
	}
}

func TestMySQL_ACommitInDoubtIsResolvedOnceTheDatabaseIsBack(t *testing.T) {
	eachServer(t, commitInDoubtIsResolvedLater)
}

// While the database is not reachable the commit stays in doubt. The next call that reaches the
// database resolves it, and no other call gets Closed.
func commitInDoubtIsResolvedLater(t *testing.T) {
	proxy, dsn := throughProxy(t, migratedDatabase(t))
	s := openMigrated(t, store.Options{DSN: dsn, MaxOpenConns: 1})
	overdue(t, s, "a")
	overdue(t, s, "b")
	proxy.CutAnswer(testkit.MySQLCommit)
	proxy.Refuse() // the open connection stays until it is cut
	ask := []orderclose.CloseRequest{{OrderID: "a"}, {OrderID: "b"}}
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
	wantError(t, err, orderclose.ErrUnavailable)
	proxy.Heal()
	for _, want := range []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyClosed} {
		for i := range ask {
			out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask[i:i+1])
			if err != nil || out[0].Verdict != want {
				t.Errorf("asked again: %+v, %v; want %s", out, err, want)
			}
		}
	}
}

// The driver has unnamed errors for a connection that breaks while it is opened.
func TestMySQL_AConnectionThatBreaksDuringTheHandshakeBlamesNoOrder(t *testing.T) {
	eachServer(t, brokenGreeting)
}

func brokenGreeting(t *testing.T) {
	cfg, err := mysql.ParseDSN(migratedDatabase(t))
	must.Do(t, err)
	cfg.Net = strings.ReplaceAll(t.Name(), "/", "-")
	mysql.RegisterDialContext(cfg.Net, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return deaf{conn}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(cfg.Net) })
	s := open(t, store.Options{DSN: cfg.FormatDSN()})
	_, err = s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
	wantError(t, err, orderclose.ErrUnavailable)
}

// deaf is a connection that is reset after the server's greeting.
type deaf struct{ net.Conn }

func (d deaf) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}
