// Package transactions tests that orders are added and payments are recorded in transactions of libraries that the product does not use.
package transactions

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/pgxtx"
)

// onSQL are libraries with the methods of database/sql.
var onSQL = map[string]storetest.Begin{
	"sqlx": func(t *testing.T, db *sql.DB, _ string) (orderclose.Tx, func(bool) error) {
		tx := must.Get(sqlx.NewDb(db, "mysql").BeginTxx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
		return orderclose.SQL(tx), ending(tx.Commit, tx.Rollback)
	},
	// A client that ent has generated with the feature sql/execquery passes its calls on to such a transaction.
	"ent": func(t *testing.T, db *sql.DB, _ string) (orderclose.Tx, func(bool) error) {
		tx := must.Get(entsql.OpenDB(dialect.MySQL, db).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t).(*entsql.Tx)
		return orderclose.SQL(tx), ending(tx.Commit, tx.Rollback)
	},
}

// onPostgres are the same libraries, and pgx with each of its query modes.
var onPostgres = map[string]storetest.Begin{
	"sqlx": onSQL["sqlx"], "ent": onSQL["ent"],
	"pgx": inMode(pgx.QueryExecModeCacheStatement), "pgx-describe": inMode(pgx.QueryExecModeCacheDescribe),
	"pgx-exec": inMode(pgx.QueryExecModeExec), "pgx-simple": inMode(pgx.QueryExecModeSimpleProtocol),
}

func inMode(mode pgx.QueryExecMode) storetest.Begin {
	return func(t *testing.T, _ *sql.DB, dsn string) (orderclose.Tx, func(bool) error) {
		cfg := must.Get(pgx.ParseConfig(dsn + "&timezone=Asia/Shanghai"))(t)
		cfg.DefaultQueryExecMode = mode
		conn := must.Get(pgx.ConnectConfig(t.Context(), cfg))(t)
		t.Cleanup(func() { must.Do(t, conn.Close(context.Background())) })
		tx := must.Get(conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}))(t)
		return pgxtx.New(tx), ending(func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) })
	}
}

func ending(commit, rollback func() error) func(bool) error {
	return func(committed bool) error {
		if committed {
			return commit()
		}
		return rollback()
	}
}

func TestTransactions_OnSQLite(t *testing.T) {
	storetest.Transactions(t, storetest.Server{New: func(t *testing.T, m *mapping.Mapping) func() *store.Store {
		s := must.Get(sqlite.OpenWith(sqlite.Memory, sqlite.Options{Orders: m}))(t)
		t.Cleanup(func() { must.Do(t, s.Close()) })
		return func() *store.Store { return s }
	}}, onSQL)
}

func TestTransactions_OnServers(t *testing.T) {
	for variable, libraries := range map[string]map[string]storetest.Begin{
		"ORDERCLOSE_DB_DSN": onSQL, "ORDERCLOSE_MYSQL_DSN": onSQL, "ORDERCLOSE_POSTGRES_DSN": onPostgres,
	} {
		t.Run(variable, func(t *testing.T) {
			dsn := os.Getenv(variable)
			if dsn == "" {
				t.Skipf("%s names no server", variable)
			}
			storetest.Transactions(t, storetest.OnServer(dsn), libraries)
		})
	}
}
