package store_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// ownPool opens a pool on the database as a program of the shop does, in another time zone.
func ownPool(t *testing.T, dsn string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
	cfg.ParseTime, cfg.Params = true, map[string]string{"time_zone": "'+03:00'", "innodb_lock_wait_timeout": "50"}
	change(cfg)
	c, err := mysql.NewConnector(cfg)
	must(t, err)
	pool := sql.OpenDB(c)
	t.Cleanup(func() { must(t, pool.Close()) })
	return pool
}

func TestPool_AStoreUsesAProgramsOwnPool(t *testing.T) { eachServer(t, usesAnOwnPool) }

func usesAnOwnPool(t *testing.T) {
	pool := ownPool(t, ownDatabase(t), func(*mysql.Config) {})
	pool.SetMaxOpenConns(5)
	s, err := store.Open(store.Options{DB: pool, MaxOpenConns: 4})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	must(t, s.Ping(t.Context()))
	exec(t, pool, "INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 10, 0)")
	overdue(t, s, "a")
	out, err := s.CloseOrders(t.Context(), orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "a"}})
	if err != nil || out[0].Verdict != orderclose.Closed || out[0].Remaining() > -time.Minute {
		t.Errorf("%+v, %v", out, err)
	}
	var zone string
	must(t, s.DB().QueryRowContext(t.Context(), "SELECT CONCAT(@@time_zone, ' ', @@innodb_lock_wait_timeout, ' ', @@sql_mode)").Scan(&zone))
	if want := "+00:00 2 STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"; zone != want {
		t.Errorf("the store's sessions have %s, want %s", zone, want)
	}
	must(t, s.Close())
	for range 10 { // the program's own sessions are as before, and the pool is open
		must(t, pool.QueryRowContext(t.Context(), "SELECT @@time_zone").Scan(&zone))
		if zone != "+03:00" {
			t.Fatalf("a session of the pool has the time zone %s", zone)
		}
	}
	if in := pool.Stats().InUse; in != 0 {
		t.Errorf("%d connections are in use after Close", in)
	}
}

func TestPool_APoolThatDoesNotFitIsRefused(t *testing.T) { eachServer(t, refusesAPool) }

func refusesAPool(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	must(t, err)
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
