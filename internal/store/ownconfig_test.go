package store_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// ownConfig returns Options with a configuration of the driver that a program has made. It dials by itself, and has settings by which orders
// would close at wrong times.
func ownConfig(t *testing.T, dsn string, dialled *atomic.Int64) store.Options {
	t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	if isPostgres(t) {
		cfg := must.Get(pgx.ParseConfig(dsn))(t)
		cfg.RuntimeParams["timezone"], cfg.RuntimeParams["lock_timeout"] = "Asia/Shanghai", "50s"
		cfg.DefaultQueryExecMode, cfg.DialFunc = pgx.QueryExecModeExec, dial
		return store.Options{Postgres: cfg}
	}
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.ParseTime, cfg.Loc, cfg.ClientFoundRows = false, must.Get(time.LoadLocation("Asia/Tokyo"))(t), true
	cfg.Params = map[string]string{"time_zone": "'+03:00'", "sql_mode": "''", "transaction_isolation": "'SERIALIZABLE'"}
	cfg.DialFunc = dial
	return store.Options{MySQL: cfg}
}

func TestOwnConfig_AStoreConnectsByIt(t *testing.T) { eachDatabase(t, connectsByOwnConfig) }

func connectsByOwnConfig(t *testing.T) {
	var dialled atomic.Int64
	s := open(t, ownConfig(t, ownDatabase(t), &dialled))
	must.Do(t, s.Migrate(t.Context()))
	must.That(t, dialled.Load() > 0, "the store has dialled by itself")
	exec(t, s.DB(), "INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 10, 0)")
	overdue(t, s, "a", "b")
	for _, want := range []shopdb.Answer{shopdb.AnswerPaid, shopdb.AlreadyPaid} { // the second changes nothing
		expect.Equal(t, must.Get(scenario.OrdersOf(s).Pay(t.Context(), "b", "p"))(t), want, "a payment")
	}
	out, err := s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "a"}})
	expect.That(t, err == nil && out[0].Verdict == orderclose.Closed && out[0].Remaining() <= -time.Minute, "%+v, %v", out, err)
	query, want := "SELECT CONCAT(@@time_zone, ' ', @@innodb_lock_wait_timeout, ' ', @@sql_mode)", "+00:00 1 STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"
	if isPostgres(t) {
		query, want = "SELECT current_setting('TimeZone') || ' ' || current_setting('lock_timeout')", "UTC 1s"
	}
	tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
	defer tx.Rollback()
	var settings string
	must.Do(t, tx.QueryRowContext(t.Context(), query).Scan(&settings))
	must.That(t, settings == want, "transactions have %s, want %s", settings, want)
}

// A program's configuration is that of one server, and as safe as a DSN.
func TestOwnConfig_IsRefused(t *testing.T) {
	my, pg := must.Get(mysql.ParseDSN("u@tcp(127.0.0.1:1)/shop"))(t), must.Get(pgx.ParseConfig("postgres://u@127.0.0.1:1/shop"))(t)
	blind, nowhere := my.Clone(), my.Clone()
	blind.TLSConfig, nowhere.DBName = "skip-verify", ""
	for want, o := range map[string]store.Options{
		"set one":           {MySQL: my, Postgres: pg},
		"two of":            {MySQL: my, DSN: "u@tcp(127.0.0.1:1)/shop"},
		"DSN with TLS":      {Postgres: pg, TLS: &tls.Config{}},
		"tls=skip-verify":   {MySQL: blind},
		"names no database": {MySQL: nowhere},
		"sslmode=prefer":    {Postgres: must.Get(pgx.ParseConfig("postgres://u@db.example.com:1/shop"))(t)},
	} {
		s, err := store.Open(o)
		if err == nil {
			must.Do(t, s.Close())
		}
		must.That(t, err != nil && strings.Contains(err.Error(), want), "%v, want %s", err, want)
	}
	for _, o := range []store.Options{{MySQL: my}, {Postgres: pg}} {
		s := open(t, o)
		must.That(t, s.Database() == "127.0.0.1:1/shop", "the database is %s", s.Database())
	}
	must.That(t, my.Params["time_zone"] == "" && pg.RuntimeParams["timezone"] == "", "the program's configuration was changed")
}

// The server stops to answer, also during a commit.
func TestOpen_AStatementWithoutAnAnswerEnds(t *testing.T) { eachDatabase(t, withoutAnswer) }

func withoutAnswer(t *testing.T) {
	proxy, dsn := storetest.Through(t, migratedDatabase(t))
	o := store.Options{DSN: dsn}.WithLimit(time.Second)
	if !isPostgres(t) {
		cfg := must.Get(mysql.ParseDSN(dsn))(t)
		cfg.ReadTimeout = time.Second
		o = store.Options{MySQL: cfg}
	}
	s := open(t, o)
	connected := func() {
		storetest.Await(t, "the pool has connections that work", func() (string, bool) {
			err := s.Probe(t.Context())
			return fmt.Sprint(err), err == nil
		})
	}
	connected()
	for _, c := range []struct {
		what  string
		stall func()
	}{
		{"any statement", proxy.Stall},
		{"the commit", func() { proxy.Set(testkit.ToClient, testkit.ProxyRules{Drop: true}) }},
		{"a new connection", func() { s.DB().SetMaxIdleConns(0); proxy.Stall() }}, // the last one: a busy machine may need the limit for a new connection
	} {
		tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		c.stall()
		ended := make(chan error, 1)
		go func() { ended <- errors.Join(s.Probe(t.Context()), tx.Commit()) }()
		storetest.Await(t, c.what+" ends", func() (string, bool) { return "no error", len(ended) > 0 })
		wantError(t, <-ended, orderclose.ErrUnavailable)
		proxy.Heal()
		connected()
	}
}

// pgxPools open a pool on a PostgreSQL database in the ways of a program of the shop, with sessions in another time zone.
var pgxPools = map[string]func(t *testing.T, dsn string) *sql.DB{
	"sql.Open": func(t *testing.T, dsn string) *sql.DB {
		return closed(t, must.Get(sql.Open("pgx", dsn+"&timezone=Asia/Shanghai&lock_timeout=50s"))(t))
	},
	"stdlib.OpenDBFromPool": func(t *testing.T, dsn string) *sql.DB {
		pool := must.Get(pgxpool.New(context.Background(), dsn+"&timezone=Asia/Shanghai&lock_timeout=50s&pool_max_conns=8"))(t)
		t.Cleanup(pool.Close)
		return closed(t, stdlib.OpenDBFromPool(pool))
	},
	"stdlib.OpenDB": func(t *testing.T, dsn string) *sql.DB {
		c := must.Get(pgx.ParseConfig(dsn + "&timezone=Asia/Shanghai&lock_timeout=50s"))(t)
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		return closed(t, stdlib.OpenDB(*c))
	},
}

// closed closes a pool when the test ends.
func closed(t *testing.T, db *sql.DB) *sql.DB {
	t.Cleanup(func() { must.Do(t, db.Close()) })
	return db
}

// mysqlPool opens a pool with settings that a Store refuses: the server's times in another zone and as text, counts of found rows, a limit of rows.
func mysqlPool(t *testing.T, dsn string) *sql.DB {
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.ParseTime, cfg.ClientFoundRows, cfg.Loc, cfg.InterpolateParams = false, true, time.FixedZone("shop", 8*3600), false
	cfg.Params = map[string]string{"time_zone": "'-05:00'", "sql_mode": "''", "sql_select_limit": "1"}
	return closed(t, sql.OpenDB(must.Get(mysql.NewConnector(cfg))(t)))
}

// A transaction of the program, with the settings of its pool, is lent. On MySQL and MariaDB it may be at REPEATABLE READ, their default.
func TestTransactions_OfAnyPoolOfTheShopAreLent(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		pools, level := map[string]func(*testing.T, string) *sql.DB{"odd settings": mysqlPool}, sql.LevelRepeatableRead
		if isPostgres(t) {
			pools, level = pgxPools, sql.LevelReadCommitted
		}
		ways := map[string]storetest.Begin{}
		for name, open := range pools {
			ways[name] = func(t *testing.T, _ *sql.DB, dsn string) (orderclose.Tx, func(bool) error) {
				tx := must.Get(open(t, dsn).BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))(t)
				return orderclose.SQL(tx), func(commit bool) error {
					if commit {
						return tx.Commit()
					}
					return tx.Rollback()
				}
			}
		}
		storetest.Transactions(t, server(t), ways)
	})
}
