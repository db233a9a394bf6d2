package db

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// PostgresDialect is that of PostgreSQL; the package postgres writes its longer statements.
var PostgresDialect = Dialect{
	Name:  Postgres,
	Clock: time.Now,
	Now:   func() any { return gorm.Expr("date_trunc('milliseconds', statement_timestamp())") },
	Millis: func() any {
		return gorm.Expr("CAST(floor(extract(epoch FROM statement_timestamp()) * 1000) AS bigint)")
	},
	MicrosSQL:  "CAST(extract(epoch FROM CASE WHEN isfinite(%[1]s) THEN %[1]s END) * 1000000 AS bigint)",
	TimeLayout: "2006-01-02 15:04:05.000+00",
	Fault:      ServerFault,
	ReleaseStock: func(s *mapping.Stock, n int) string {
		set, where := ReleaseStock(s, "")
		return postgres.ReleaseStock(s, n, set, where, sameRow(s))
	},
	ReleaseWaits: func(*gorm.DB) (bool, error) { return false, nil },
	Triggers:     postgres.CountTriggers,
	HereSQL:      "COALESCE(current_schema(), '')",
	HomeSQL: "current_database() || '.' || COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace" +
		" WHERE c.oid = to_regclass('receipts')), '')",
	InTxSQL:      "current_setting('transaction_isolation'), " + postgres.HidesReceipts + ", " + postgres.RaiseCommit,
	HasTable:     "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ?",
	Tables:       "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), current_schema()) AND table_name LIKE ?",
	DeleteByID:   postgres.DeleteByID,
	Dispatch:     func(_ context.Context, d Dispatching) (int, error) { return d.Locked() },
	SessionLock:  postgresLock.lock,
	OnTx:         postgres.OnTx,
	OnConflict:   true,
	JSONArray:    "json_build_array",
	ReadOnly:     "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'",
	ForUpdate:    " FOR UPDATE",
	SkipLocked:   " FOR UPDATE SKIP LOCKED",
	ShareLock:    " FOR SHARE %s",
	FailFast:     "SET LOCAL lock_timeout = '1ms'; SAVEPOINT stock",
	LocksOldRows: true,
	RowTable:     "tableoid::regclass::text",
	Settle:       "SET CONSTRAINTS ALL IMMEDIATE",
	Describe:     postgres.Describe,
	Rows:         postgres.Rows,
	ScannedTable: postgres.ScannedTable,
	Distinct:     postgres.Distinct,
	ShortWaits:   []string{"SET LOCAL lock_timeout = '1s'"},
	Snapshot:     &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

// postgresLockName is the number of a lock on PostgreSQL, which belongs to a database. It includes the schema.
const postgresLockName = "hashtextextended(concat_ws('.', 'orderclose', current_schema(), $1::text), 0)"

// postgresLock has the statements of PostgreSQL. Its transaction is open as long as the lock. It has no snapshot between two
// statements, so VACUUM can remove dead rows meanwhile.
var postgresLock = lockStatements{
	Begin: "START TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '" + postgres.Silence + "'",
	Take:  "SELECT pg_try_advisory_xact_lock(" + postgresLockName + ")::int",
	Held: "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted" +
		" AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = " + postgresLockName,
	Release: "ROLLBACK",
}
