package store_test

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"orderclose"
	"orderclose/internal/store"
	"orderclose/internal/tcpproxy"
)

func TestMySQL_CommitWithoutAnswerIsAskedAgain(t *testing.T) {
	eachServer(t, commitWithoutAnswerIsAskedAgain)
}

// Whichever side of the commit the connection broke on, the error blames no
// order, and asking again tells what is true and does it at most once.
func commitWithoutAnswerIsAskedAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  func(*tcpproxy.Proxy, []byte) <-chan struct{}
		want orderclose.Verdict
	}{
		{"before", (*tcpproxy.Proxy).CutBefore, orderclose.Closed},
		{"after", (*tcpproxy.Proxy).CutAnswer, orderclose.AlreadyClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, dsn := throughProxy(t, ownDatabase(t))
			s := openMigrated(t, store.Options{DSN: dsn})
			overdue(t, s, "a")

			cut := c.cut(proxy, tcpproxy.MySQLCommit)
			ask := []orderclose.CloseRequest{{OrderID: "a"}}
			_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			wantError(t, err, orderclose.ErrUnavailable)
			<-cut
			out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
			if err != nil || out[0].Verdict != c.want {
				t.Errorf("asked again: %v, %v; want %v", out, err, c.want)
			}
			var stock, receipts int
			must(t, s.DB().QueryRowContext(t.Context(), "SELECT available, (SELECT COUNT(*) FROM receipts) FROM stock").Scan(&stock, &receipts))
			if stock != 1000 || receipts != 1 {
				t.Errorf("%d in stock and %d receipts; want 1000 and 1", stock, receipts)
			}
		})
	}
}

// The driver has errors of its own, without a name to compare with, for a
// connection that breaks while it is being opened.
func TestMySQL_ConnectionThatBreaksInTheMiddleOfTheGreetingIsNoOrdersFault(t *testing.T) {
	eachServer(t, brokenGreeting)
}

func brokenGreeting(t *testing.T) {
	cfg, err := mysql.ParseDSN(ownDatabase(t))
	must(t, err)
	must(t, open(t, store.Options{DSN: cfg.FormatDSN()}).Migrate(t.Context()))
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

// deaf is a connection that was reset after the server's greeting.
type deaf struct{ net.Conn }

func (d deaf) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

// throughProxy returns a proxy to the server of dsn, and the DSN that leads
// through it.
func throughProxy(t *testing.T, dsn string) (*tcpproxy.Proxy, string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
	proxy, err := tcpproxy.New(cfg.Addr)
	must(t, err)
	t.Cleanup(func() { must(t, proxy.Close()) })
	cfg.Addr = proxy.Addr()
	return proxy, cfg.FormatDSN()
}
