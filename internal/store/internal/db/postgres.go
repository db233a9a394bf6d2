package db

import (
	"database/sql"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// PostgresDialect is that of PostgreSQL; the package postgres writes its longer statements.
var PostgresDialect = Dialect{
	Name:        Postgres,
	TellsTables: true,
	Times:       mapping.TimeColumn{Type: mapping.TimestampTZ, Precision: mapping.Millis},
	LocalTime:   "TIMESTAMP",
	Bigint:      "bigint",
	TextSQL:     postgresText,
	BytesSQL:    postgresText,
	FoldsNames:  true,
	Now:         func() any { return gorm.Expr("date_trunc('milliseconds', statement_timestamp())") },
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
	Triggers: postgres.CountTriggers,
	HereSQL:  "COALESCE(current_schema(), '')",
	HomeSQL: "current_database() || '.' || COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace" +
		" WHERE c.oid = to_regclass('receipts')), '')",
	InTxSQL:     "current_setting('transaction_isolation'), " + postgres.HidesReceipts + ", " + postgres.RaiseCommit,
	HasTable:    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ?",
	Tables:      "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), current_schema()) AND table_name LIKE ?",
	DeleteByID:  postgres.DeleteByID,
	SessionLock: postgresLock.lock,
	OnTx:        postgres.OnTx,
	OnConflict:  OnConflict,
	Given:       Excluded,
	JSONArray:   "json_build_array",
	Version:     "SELECT VERSION()",
	Variables:   "SELECT name, '' FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend')",
	Silence: func() string {
		return "SELECT CASE current_setting('idle_in_transaction_session_timeout') WHEN '" + postgres.Silence + "' THEN '' ELSE " +
			"'idle_in_transaction_session_timeout is ' || current_setting('idle_in_transaction_session_timeout') END"
	},
	RowSecurity:  postgres.RowSecurity,
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
	LimitedRead:  &sql.TxOptions{ReadOnly: true},
}

const postgresText = `CAST(%s AS text) COLLATE "C"`

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
