package store_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMySQL_ACommitWithoutAnAnswerClosesOnce(t *testing.T) {
	eachServer(t, commitWithoutAnAnswer)
}

// The call fails, and blames no order. The next one closes the order, or finds it closed if the commit was done; the stock comes back once.
func commitWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(*testkit.Proxy, []byte) <-chan struct{}
		then orderclose.Verdict
	}{
		"before": {(*testkit.Proxy).CutBefore, orderclose.Closed},
		"after":  {(*testkit.Proxy).CutAnswer, orderclose.AlreadyClosed},
	} {
		t.Run(name, func(t *testing.T) {
			proxy, dsn := storetest.Through(t, migratedDatabase(t))
			s := openMigrated(t, store.Options{DSN: dsn})
			overdue(t, s, "a")
			broken := c.cut(proxy, testkit.MySQLCommit)
			_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
			wantError(t, err, orderclose.ErrUnavailable)
			<-broken
			got := settled(t, s, "a")
			expect.That(t, got[0] == c.then, "the next call says %s; want %s", got[0], c.then)
			wantVerdicts(t, s, orderclose.AlreadyClosed, orderclose.CloseRequest{OrderID: "a"})
			var stock, receipts, events int
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT available, (SELECT COUNT(*) FROM receipts), (SELECT COUNT(*) FROM outbox_events) FROM stock").
				Scan(&stock, &receipts, &events))
			expect.That(t, stock == 1000 && receipts == 1 && events == 1,
				"%d in stock, %d receipts and %d events; want 1000, 1 and 1", stock, receipts, events)
		})
	}
}

// settled closes orders until none is Contended: a server may not have ended the transaction yet whose connection broke.
func settled(t *testing.T, s *store.Store, ids ...string) (verdicts []orderclose.Verdict) {
	t.Helper()
	storetest.Await(t, "no order is contended", func() (string, bool) {
		verdicts = must.Get(closeOrders(t, s, ids...))(t)
		return fmt.Sprint(verdicts), !slices.Contains(verdicts, orderclose.Contended)
	})
	return verdicts
}

// The driver has unnamed errors for a connection that breaks while it is opened.
func TestMySQL_AConnectionThatBreaksDuringTheHandshakeBlamesNoOrder(t *testing.T) {
	eachServer(t, brokenGreeting)
}

func brokenGreeting(t *testing.T) {
	cfg := must.Get(mysql.ParseDSN(migratedDatabase(t)))(t)
	cfg.Net = strings.ReplaceAll(t.Name(), "/", "-")
	mysql.RegisterDialContext(cfg.Net, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return deaf{conn}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(cfg.Net) })
	s := open(t, store.Options{DSN: cfg.FormatDSN()})
	_, err := closeOrders(t, s, "a")
	wantError(t, err, orderclose.ErrUnavailable)
}

// deaf is a connection that is reset after the server's greeting.
type deaf struct{ net.Conn }

func (d deaf) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}
