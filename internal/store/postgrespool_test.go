package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// pgxPools open a pool on a PostgreSQL database in the ways of a program of the shop, with sessions in another
// time zone.
var pgxPools = map[string]func(t *testing.T, dsn string) *sql.DB{
	"sql.Open": func(t *testing.T, dsn string) *sql.DB {
		db, err := sql.Open("pgx", dsn+"&timezone=Asia/Shanghai&lock_timeout=50s")
		must(t, err)
		return db
	},
	"stdlib.OpenDBFromPool": func(t *testing.T, dsn string) *sql.DB {
		pool, err := pgxpool.New(context.Background(), dsn+"&timezone=Asia/Shanghai&lock_timeout=50s&pool_max_conns=8")
		must(t, err)
		t.Cleanup(pool.Close)
		return stdlib.OpenDBFromPool(pool)
	},
	"stdlib.OpenDB": func(t *testing.T, dsn string) *sql.DB {
		c, err := pgx.ParseConfig(dsn + "&timezone=Asia/Shanghai&lock_timeout=50s")
		must(t, err)
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		return stdlib.OpenDB(*c)
	},
}

func TestPostgresPool_AStoreUsesAProgramsOwnPool(t *testing.T) {
	for name, openPool := range pgxPools {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, postgresDatabase(t))
			t.Cleanup(func() { must(t, pool.Close()) })
			pool.SetMaxOpenConns(8)
			s, err := store.Open(store.Options{DB: pool, MaxOpenConns: 4})
			must(t, err)
			must(t, s.Migrate(t.Context()))
			must(t, s.Ping(t.Context()))
			exec(t, pool, "INSERT INTO stock (sku_id, available, reserved) VALUES ($1, 10, 0)", "ink")
			overdue(t, s, "a")
			out, err := s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "a"}})
			if err != nil || out[0].Verdict != orderclose.Closed || out[0].Remaining() > -time.Minute {
				t.Errorf("%+v, %v", out, err)
			}
			tx, err := s.DB().BeginTx(t.Context(), nil)
			must(t, err)
			var settings string
			must(t, tx.QueryRowContext(t.Context(), "SELECT current_setting('TimeZone') || ' ' || current_setting('lock_timeout')").Scan(&settings))
			must(t, tx.Rollback())
			if want := "UTC 2s"; settings != want {
				t.Errorf("the store's transactions have %s, want %s", settings, want)
			}
			must(t, s.Close())
			for range 10 { // the program's own sessions are as before, and the pool is open
				must(t, pool.QueryRowContext(t.Context(), "SELECT current_setting('TimeZone') || ' ' || current_setting('lock_timeout')").Scan(&settings))
				if settings != "Asia/Shanghai 50s" {
					t.Fatalf("a session of the pool has %s", settings)
				}
			}
			if in := pool.Stats().InUse; in != 0 {
				t.Errorf("%d connections are in use after Close", in)
			}
		})
	}
}

// A payment is recorded in a transaction of the program, with the settings of its pool.
func TestPostgresPool_APaymentIsRecordedInAnyTransaction(t *testing.T) {
	dsn := postgresDatabase(t)
	s := openMigrated(t, store.Options{DSN: dsn})
	for name, openPool := range pgxPools {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, dsn)
			defer func() { must(t, pool.Close()) }()
			overdue(t, s, name)
			for _, want := range []store.Recorded{store.RecordedPaid, store.RecordedAlready} {
				tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				must(t, err)
				got, err := s.RecordPayment(t.Context(), tx, store.LatePayment{OrderID: name, PaymentID: "p", Amount: 100, Currency: "EUR"})
				if err != nil || got != want {
					t.Errorf("%v, %v; want %v", got, err, want)
				}
				must(t, tx.Commit())
			}
		})
	}
}

// The pool has no read timeout, and the server stops to answer, also during a commit.
func TestPostgresPool_AStatementWithoutAnAnswerEnds(t *testing.T) {
	config, err := pgx.ParseConfig(postgresDatabase(t))
	must(t, err)
	proxy, err := testkit.NewProxy(net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	must(t, err)
	defer proxy.Close()
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, proxy.Addr())
	}
	pool := stdlib.OpenDB(*config)
	defer pool.Close()
	s := open(t, store.Options{DB: pool}.WithLimit(time.Second))
	must(t, s.Migrate(t.Context()))
	must(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	for what, stall := range map[string]func(){
		"any statement":    proxy.Stall,
		"the commit":       func() { proxy.Set(testkit.ToClient, testkit.ProxyRules{Drop: true}) },
		"a new connection": func() { s.DB().SetMaxIdleConns(0); proxy.Stall() },
	} {
		overdue(t, s, what)
		tx, err := s.DB().BeginTx(t.Context(), nil)
		must(t, err)
		stall()
		wantError(t, errors.Join(s.Probe(t.Context()), tx.Commit()), orderclose.ErrUnavailable)
		proxy.Heal()
	}
	for range 10 { // until the pool has replaced its connections
		if err = s.Probe(t.Context()); err == nil {
			break
		}
	}
	must(t, err)
}
