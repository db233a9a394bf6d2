package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// ownPool opens a pool on the database as a program of the shop does, in another time zone.
func ownPool(t *testing.T, dsn string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.ParseTime, cfg.Params = true, map[string]string{"time_zone": "'+03:00'", "innodb_lock_wait_timeout": "50"}
	change(cfg)
	c := must.Get(mysql.NewConnector(cfg))(t)
	pool := sql.OpenDB(c)
	t.Cleanup(func() { must.Do(t, pool.Close()) })
	return pool
}

// programPools open a pool on a database in the ways of a program of the shop, with sessions in another time zone.
func programPools(t *testing.T) map[string]func(t *testing.T, dsn string) *sql.DB {
	if isPostgres(t) {
		return pgxPools
	}
	return map[string]func(t *testing.T, dsn string) *sql.DB{"go-sql-driver": func(t *testing.T, dsn string) *sql.DB {
		return ownPool(t, dsn, func(*mysql.Config) {})
	}}
}

// sessionSettings is a query of settings that the store needs, what the store's transactions have, and the sessions of
// programPools.
func sessionSettings(t *testing.T) (query, store, program string) {
	if isPostgres(t) {
		return "SELECT current_setting('TimeZone') || ' ' || current_setting('lock_timeout')", "UTC 2s", "Asia/Shanghai 50s"
	}
	return "SELECT CONCAT(@@time_zone, ' ', @@innodb_lock_wait_timeout)", "+00:00 2", "+03:00 50"
}

func TestPool_AStoreUsesAProgramsOwnPool(t *testing.T) { eachDatabase(t, usesAnOwnPool) }

func usesAnOwnPool(t *testing.T) {
	query, want, before := sessionSettings(t)
	for name, openPool := range programPools(t) {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, migratedDatabase(t))
			pool.SetMaxOpenConns(8)
			s := must.Get(store.Open(store.Options{DB: pool, MaxOpenConns: 4}))(t)
			must.Do(t, s.Migrated(t.Context()))
			must.Do(t, s.Ping(t.Context()))
			exec(t, pool, "INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 10, 0)")
			overdue(t, s, "a")
			out, err := s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "a"}})
			if err != nil || out[0].Verdict != orderclose.Closed || out[0].Remaining() > -time.Minute {
				t.Errorf("%+v, %v", out, err)
			}
			tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
			var settings, mode string
			must.Do(t, tx.QueryRowContext(t.Context(), query).Scan(&settings))
			if !isPostgres(t) {
				must.Do(t, tx.QueryRowContext(t.Context(), "SELECT @@sql_mode").Scan(&mode))
			}
			must.Do(t, tx.Rollback())
			if settings != want || !isPostgres(t) && mode != "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION" {
				t.Errorf("the store's transactions have %s %s, want %s", settings, mode, want)
			}
			must.Do(t, s.Close())
			for range 10 { // the program's own sessions are as before, and the pool is open
				must.Do(t, pool.QueryRowContext(t.Context(), query).Scan(&settings))
				if settings != before {
					t.Fatalf("a session of the pool has %s", settings)
				}
			}
			if in := pool.Stats().InUse; in != 0 {
				t.Errorf("%d connections are in use after Close", in)
			}
		})
	}
}

func TestPool_APoolThatDoesNotFitIsRefused(t *testing.T) { eachServer(t, refusesAPool) }

func refusesAPool(t *testing.T) {
	tokyo := must.Get(time.LoadLocation("Asia/Tokyo"))(t)
	for want, change := range map[string]func(*mysql.Config){
		"parseTime=true":          func(c *mysql.Config) { c.ParseTime = false },
		"loc=UTC":                 func(c *mysql.Config) { c.Loc = tokyo },
		"without clientFoundRows": func(c *mysql.Config) { c.ClientFoundRows = true },
	} {
		pool := ownPool(t, realDSN(t), change)
		s := open(t, store.Options{DB: pool})
		err := s.Ping(t.Context())
		if !errors.Is(err, store.ErrPool) || !errors.Is(err, orderclose.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if in := pool.Stats().InUse; in != 0 {
			t.Errorf("%s: %d connections are in use", want, in)
		}
	}
	if _, err := store.Open(store.Options{DB: ownPool(t, realDSN(t), func(*mysql.Config) {}), DSN: "x"}); err == nil {
		t.Error("a DSN and a DB were accepted")
	}
}

// The program's pool has ten connections. Thirty closes at once leave it half of them.
func TestPool_TheProgramKeepsHalfOfItsPool(t *testing.T) { eachServer(t, keepsHalf) }

func keepsHalf(t *testing.T) {
	pool := ownPool(t, migratedDatabase(t), func(*mysql.Config) {})
	pool.SetMaxOpenConns(10) // of which five are the store's
	s := open(t, store.Options{DB: pool})
	var closes sync.WaitGroup
	for i := range 30 {
		closes.Go(func() {
			if _, err := s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: fmt.Sprint("o", i)}}); err != nil {
				t.Error(err)
			}
		})
	}
	closes.Wait()
	stats := pool.Stats()
	if stats.InUse > 5 || stats.WaitCount > 0 {
		t.Errorf("the store took %d connections of 10, and waited %d times for one", stats.InUse, stats.WaitCount)
	}
	must.Do(t, pool.PingContext(t.Context()))
}

func TestOpen_RefusesAPoolWithTooFewConnections(t *testing.T) {
	for _, c := range []struct {
		pool, most, need int
		want             string // in the error; empty: accepted
	}{
		{0, 0, 0, ""}, {4, 0, 0, ""}, {6, 0, 3, ""}, {100, 2, 0, ""},
		{3, 0, 0, "SetMaxOpenConns(4)"}, {1, 0, 0, "SetMaxOpenConns(4)"}, {5, 0, 3, "SetMaxOpenConns(6)"}, {100, 1, 0, "(MaxConns), and it needs 2"},
	} {
		pool := ownPool(t, "root@tcp(127.0.0.1:1)/shop", func(*mysql.Config) {})
		pool.SetMaxOpenConns(c.pool)
		s, err := store.Open(store.Options{DB: pool, MaxOpenConns: c.most, NeedConns: c.need})
		if err == nil {
			must.Do(t, s.Close())
		}
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, store.ErrPool) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A program's own pool has no read timeout, and the server stops to answer, also during a commit.
func TestPool_AStatementWithoutAnAnswerEnds(t *testing.T) { eachDatabase(t, withoutAnswer) }

func withoutAnswer(t *testing.T) {
	proxy, dsn := throughProxy(t, migratedDatabase(t))
	openPool := programPools(t)["go-sql-driver"]
	if isPostgres(t) {
		openPool = pgxPools["sql.Open"]
	}
	s := open(t, store.Options{DB: openPool(t, dsn)}.WithLimit(time.Second))
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
