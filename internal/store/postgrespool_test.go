package store_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// pgxPools open a pool on a PostgreSQL database in the ways of a program of the shop, with sessions in another
// time zone.
var pgxPools = map[string]func(t *testing.T, dsn string) *sql.DB{
	"sql.Open": func(t *testing.T, dsn string) *sql.DB {
		db := must.Get(sql.Open("pgx", dsn+"&timezone=Asia/Shanghai&lock_timeout=50s"))(t)
		return closed(t, db)
	},
	"stdlib.OpenDBFromPool": func(t *testing.T, dsn string) *sql.DB {
		pool := must.Get(pgxpool.New(context.Background(), dsn+"&timezone=Asia/Shanghai&lock_timeout=50s&pool_max_conns=8"))(t)
		t.Cleanup(pool.Close)
		db := closed(t, stdlib.OpenDBFromPool(pool))
		db.SetMaxOpenConns(8)
		return db
	},
	"stdlib.OpenDB": func(t *testing.T, dsn string) *sql.DB {
		c := must.Get(pgx.ParseConfig(dsn + "&timezone=Asia/Shanghai&lock_timeout=50s"))(t)
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		return closed(t, stdlib.OpenDB(*c))
	},
}

// The limit of a pgxpool.Pool cannot be read. A Store would take all of its connections, and keep the program waiting.
func TestPostgresPool_OfAPgxpoolNeedsALimit(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		pool := must.Get(pgxpool.New(t.Context(), ownDatabase(t)))(t)
		t.Cleanup(pool.Close)
		db := closed(t, stdlib.OpenDBFromPool(pool))
		if err := open(t, store.Options{DB: db}).Ping(t.Context()); !errors.Is(err, store.ErrPool) {
			t.Errorf("without a limit: %v", err)
		}
		db.SetMaxOpenConns(4)
		must.Do(t, open(t, store.Options{DB: db}).Ping(t.Context()))
	})
}

// closed closes a pool when the test ends.
func closed(t *testing.T, db *sql.DB) *sql.DB {
	t.Cleanup(func() { must.Do(t, db.Close()) })
	return db
}

// A payment is recorded in a transaction of the program, with the settings of its pool.
func TestPostgresPool_APaymentIsRecordedInAnyTransaction(t *testing.T) {
	onPostgres(t, recordedInAnyTransaction)
}

func recordedInAnyTransaction(t *testing.T) {
	dsn := migratedDatabase(t)
	s := openMigrated(t, store.Options{DSN: dsn})
	for name, openPool := range pgxPools {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, dsn)
			overdue(t, s, name)
			for _, want := range []store.Recorded{store.RecordedPaid, store.RecordedAlready} {
				tx := must.Get(pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
				got, err := s.RecordPayment(t.Context(), orderclose.SQL(tx), store.LatePayment{OrderID: name, PaymentID: "p", Amount: 100, Currency: "EUR"})
				if err != nil || got != want {
					t.Errorf("%v, %v; want %v", got, err, want)
				}
				must.Do(t, tx.Commit())
			}
		})
	}
}
