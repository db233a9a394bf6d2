package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// A COMMIT waits for a standby that does not answer. The close fails, and nobody sees it: after a failover it may be
// lost. When the standby answers, or is given up, the close is done.
func TestPostgres_ACommitWithoutAnAnswerIsNotCancelled(t *testing.T) {
	if os.Getenv("REQUIRE_REAL") != "1" || os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("it needs a PostgreSQL of its own")
	}
	server := must.Get(servers.New("postgresql", filepath.Join(t.TempDir(), "postgresql")))(t)
	server.Env = append(server.Env, "ORDERCLOSE_SERVERS=native")
	must.Do(t, server.Start(t.Context()))
	t.Cleanup(func() { must.Do(t, server.Stop(context.WithoutCancel(t.Context()))) })
	dsn := "postgres://postgres@" + server.Addr() + "/postgres?sslmode=disable"
	pool := must.Get(sql.Open("pgx", dsn))(t)
	t.Cleanup(func() { pool.Close() })
	s := open(t, store.Options{DSN: dsn}.WithLimit(time.Second))
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	overdue(t, s, "a")
	setting := func(standbys string) {
		exec(t, pool, "ALTER SYSTEM SET synchronous_standby_names = '"+standbys+"'")
		exec(t, pool, "SELECT pg_reload_conf()")
	}
	counts := func(query string, want int) func() (string, bool) {
		return func() (string, bool) {
			n := -1
			must.Do(t, pool.QueryRowContext(t.Context(), query).Scan(&n))
			return fmt.Sprint(n), n == want
		}
	}
	is := func(query string, want int) bool {
		_, is := counts(query, want)()
		return is
	}
	setting("*")
	storetest.Await(t, "the server has the setting", counts("SELECT COUNT(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '*'", 1))
	const waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	for waits := false; !waits; { // until the checkpointer has read the setting too
		probe := make(chan error, 1)
		go func() {
			_, err := pool.ExecContext(context.WithoutCancel(t.Context()), "SELECT pg_logical_emit_message(true, 'probe', '')")
			probe <- err
		}()
		storetest.Await(t, "a COMMIT waits or ends", func() (string, bool) {
			waits = is(waiting, 1)
			return "neither", waits || len(probe) > 0
		})
	}
	if _, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}}); !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("the close returned %v", err)
	}
	expect.That(t, is(waiting, 2) && is("SELECT status FROM orders", 0) && is("SELECT COUNT(*) FROM outbox_events", 0),
		"others see the close, or its COMMIT does not wait any more")
	setting("")
	storetest.Await(t, "the order is closed", counts("SELECT status FROM orders", 2))
	storetest.Await(t, "no COMMIT waits", counts(waiting, 0))
}

// At REPEATABLE READ a transaction locks an order, and reads its late payments as they were before.
func TestPostgres_APaymentNeedsReadCommitted(t *testing.T) { onPostgres(t, needsReadCommitted) }

func needsReadCommitted(t *testing.T) {
	s := open(t, store.Options{DSN: migratedDatabase(t)})
	tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
	defer func() { must.Do(t, tx.Rollback()) }()
	_, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: "a", PaymentID: "p1"})
	expect.That(t, err != nil && strings.Contains(err.Error(), "begin it at READ COMMITTED"), "recorded: %v", err)
}
