package store_test

import (
	"context"
	"database/sql"
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
