package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// Dialect holds what differs between databases: their SQL, the source of the current time, and
// how a time is stored.
type Dialect struct {
	Name DialectName
	// Clock returns the current time, for a database without a clock of its own. Nil: the
	// database's clock is read.
	Clock func() time.Time
	// UnixMillis says that times are stored as whole numbers.
	UnixMillis bool
	// Fault returns the cause of an error of the driver.
	Fault func(error) Fault

	// The following strings, and the results of the functions with a string result, are SQL.

	Unindexed string // written before a column, so that no index on it is used
	// ReleaseStock returns an UPDATE that releases n SKUs. Its arguments are n times a SKU, its location if the
	// stock has one, and a quantity; and then the lock of the rows.
	ReleaseStock func(s *mapping.Stock, n int) string
	Triggers     func(tables []string) string // an expression: how many triggers tables have; 0: each close looks at the stock
	HasTable     string                       // a query that counts the tables of one name
	hereSQL      string                       // the name of the database, in PostgreSQL of the schema; empty: it has none
	homeSQL      string                       // an expression: where a connection finds the table receipts; empty: in the only database
	Tables       string                       // a query for the names of tables in a database, LIKE a pattern
	// DeleteByID returns a DELETE of rows, which locks no other row. Its argument is the list of
	// their ids, in JSON.
	DeleteByID func(table string) string
	// Dispatch shares the rows of an outbox among dispatchers, and returns how many rows it read. Nil:
	// dispatchers lock rows.
	Dispatch func(context.Context, Dispatching) (rows int, err error)
	// sessionLock has the statements of a lock that belongs to a connection. Nil: there is none.
	sessionLock *lockStatements

	nowSQL     string // the server's clock in UTC, in milliseconds, when the statement began; empty: Clock is set
	millisSQL  string // the same in unix milliseconds
	microsSQL  string // a column with a date and time as if in UTC, %s, in unix microseconds
	timeLayout string // of Dialect.timeText
	// translate returns a statement with backquotes as the database takes it. Nil: as it is.
	translate func(string) string
	// onTx returns a statement with its arguments as a transaction of a program takes them. Nil: as they are.
	onTx func(query string, args []any) (string, []any)
	// onConflict says that an INSERT has ON CONFLICT in place of REPLACE.
	onConflict bool
	jsonArray  string // the function that returns a JSON array of its arguments; empty: JSON_ARRAY
	readOnly   string // a query whether the server takes no writes; empty: it always does
	forceIndex string // the text after a table's name that forces the index %s, whatever the statistics say
	lock       string // appended to a SELECT that locks what it reads
	// skipLocked is lock for a SELECT that leaves out the rows that other transactions lock. Empty: the
	// database has one write transaction at a time, and locks no rows.
	skipLocked string
	// failFast are statements that a close executes before ReleaseStock. Then ReleaseStock waits for a locked row for a millisecond, and
	// fails. They also set the savepoint stock, to which the transaction goes back after that failure. Empty: the transaction goes on
	// without a savepoint.
	failFast string
	// releaseWaits is a query whether ReleaseStock waits for locked rows on this server: MySQL waits, MariaDB does not. Empty: no server
	// of this dialect waits.
	releaseWaits string
	// isolation has three expressions: the isolation of the transaction, whether row-level security may hide receipts or late payments from it,
	// and one without a meaning. It is for a database whose
	// SELECT that locks rows reads them as of its beginning, or as of that of a REPEATABLE READ transaction. A row that another
	// transaction adds while the SELECT waits is missing in its result. Empty: the SELECT reads the last commit.
	isolation string
	shareLock string // the text of share, with wait as %[1]s; empty: the database has one write transaction at a time

	settle string // a statement that runs the deferred triggers of a transaction; empty: there are none

	// rowSecurity reports whether policies may hide rows of a table from the user. Nil: the database has none.
	rowSecurity func(tx *gorm.DB, schema, table string) (active bool, err error)

	// describe returns the definition of a table of a database ("": the connection's), and false if the user sees no
	// such table. Nil: mappings are not checked, and no close is tried.
	describe func(tx *gorm.DB, database, table string) (t mapping.Table, ok bool, err error)
	// rows writes rows of a width for an INSERT, with its arguments. Nil: a list of values.
	rows func(width int, args []any) (list string, of []any)
	// scannedTable returns a table that a statement would read as a whole, without executing it.
	scannedTable func(ctx context.Context, db *gorm.DB, query string) (table string, err error)
	// distinct returns a query for the values of a column of a table. Nil: GROUP BY.
	distinct func(column, table string) string
	// shortWaits are statements that bound each wait of a transaction for a lock by a second. The settings may
	// outlast the transaction, but not its connection.
	shortWaits []string
	// snapshot has the options of a transaction that reads everything as of its beginning. Nil: every
	// transaction does.
	snapshot *sql.TxOptions
}

// DialectName names a kind of database.
type DialectName string

const (
	// MySQL is MySQL 8 and MariaDB 10.6 or newer.
	MySQL DialectName = "mysql"
	// Postgres is PostgreSQL 13 or newer.
	Postgres DialectName = "postgres"
	// SQLite is for the demo and for tests; see package sqlite.
	SQLite DialectName = "sqlite"
)

var mysqlDialect = Dialect{
	Name:         MySQL,
	Fault:        ServerFault,
	ReleaseStock: releaseStock,
	Triggers:     countTriggers,
	hereSQL:      "COALESCE(DATABASE(), '')",
	homeSQL:      "COALESCE(DATABASE(), '')",
	HasTable:     "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
	Tables:       "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name LIKE ?",
	DeleteByID:   deleteByID,
	sessionLock:  &mysqlLock,
	forceIndex:   " FORCE INDEX (%s)",
	lock:         " FOR UPDATE",
	skipLocked:   " FOR UPDATE SKIP LOCKED", // MariaDB since 10.6
	releaseWaits: "SELECT VERSION() NOT LIKE '%MariaDB%'",
	// MariaDB has no FOR SHARE, and MySQL no LOCK IN SHARE MODE that does not wait. Each executes one of the comments.
	shareLock:    " /*!80001 FOR SHARE %[1]s */ /*M!100600 LOCK IN SHARE MODE %[1]s */",
	describe:     describeTable,
	scannedTable: scannedTable,
	shortWaits:   []string{"SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION lock_wait_timeout = 1"},
	nowSQL:       "UTC_TIMESTAMP(3)", // never NOW(3), which is in the session's zone
	millisSQL:    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
	microsSQL:    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %s)",
	timeLayout:   "2006-01-02 15:04:05.000",
	readOnly:     "SELECT @@global.read_only",
	snapshot:     &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

var postgresDialect = Dialect{
	Name:  Postgres,
	Fault: ServerFault,
	ReleaseStock: func(s *mapping.Stock, n int) string {
		set, where := ReleaseStock(s, "")
		return postgres.ReleaseStock(s, n, set, where, sameRow(s))
	},
	Triggers: postgres.CountTriggers,
	hereSQL:  "COALESCE(current_schema(), '')",
	homeSQL: "current_database() || '.' || COALESCE((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace" +
		" WHERE c.oid = to_regclass('receipts')), '')",
	HasTable:     "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ?",
	Tables:       "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), current_schema()) AND table_name LIKE ?",
	DeleteByID:   postgres.DeleteByID,
	lock:         " FOR UPDATE",
	skipLocked:   " FOR UPDATE SKIP LOCKED",
	failFast:     "SET LOCAL lock_timeout = '1ms'; SAVEPOINT stock",
	isolation:    "current_setting('transaction_isolation'), " + postgres.HidesReceipts + ", " + postgres.RaiseCommit,
	shareLock:    " FOR SHARE %[1]s",
	describe:     postgres.Describe,
	rowSecurity:  postgres.RowSecurity,
	scannedTable: postgres.ScannedTable,
	distinct:     postgres.Distinct,
	rows:         postgres.Rows,
	nowSQL:       "date_trunc('milliseconds', statement_timestamp())",
	millisSQL:    "CAST(floor(extract(epoch FROM statement_timestamp()) * 1000) AS bigint)",
	microsSQL:    "CAST(extract(epoch FROM %s) * 1000000 AS bigint)",
	timeLayout:   "2006-01-02 15:04:05.000+00",
	onTx:         postgres.OnTx,
	onConflict:   true,
	settle:       "SET CONSTRAINTS ALL IMMEDIATE",
	jsonArray:    "json_build_array",
	readOnly:     "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'",
	shortWaits:   []string{"SET LOCAL lock_timeout = '1s'"},
	sessionLock:  &postgresLock,
	translate:    postgres.Translate,
	snapshot:     &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
}

// serverDialects are the dialects of servers.
var serverDialects = map[DialectName]Dialect{MySQL: mysqlDialect, Postgres: postgresDialect}

// literal writes a number or text into a statement.
func (d Dialect) literal(value any) string {
	text, is := value.(string)
	if !is {
		return fmt.Sprint(value)
	}
	if d.Name == MySQL {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// replace returns an INSERT of one row that takes the place of the row with the same key, which is the first
// columns of the table.
func (d Dialect) replace(table string, keys int, columns ...string) string {
	into := " INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(columns)-1) + ")"
	if !d.onConflict {
		return "REPLACE" + into
	}
	var set []string
	for _, c := range columns[keys:] {
		set = append(set, c+" = EXCLUDED."+c)
	}
	return "INSERT" + into + " ON CONFLICT (" + strings.Join(columns[:keys], ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// upsert returns an INSERT of one row with values of keys and columns. If the keys have a row, it sets its columns to what set returns: row
// writes the old value of a column, and given that of the INSERT.
func (d Dialect) upsert(table string, keys, columns []string, set func(row, given func(column string) string, column string) string) string {
	row := func(column string) string { return table + "." + column }
	given, on := func(column string) string { return "EXCLUDED." + column }, " ON CONFLICT ("+strings.Join(keys, ", ")+") DO UPDATE SET "
	if d.Name == MySQL {
		given, on = func(column string) string { return "VALUES(" + column + ")" }, " ON DUPLICATE KEY UPDATE "
	}
	assignments := make([]string, len(columns))
	for i, c := range columns {
		assignments[i] = c + " = " + set(row, given, c)
	}
	all := slices.Concat(keys, columns)
	return "INSERT INTO " + table + " (" + strings.Join(all, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(all)-1) + ")" + on + strings.Join(assignments, ", ")
}

// share returns the text after a SELECT that keeps others from changing what it reads. wait is NOWAIT, SKIP LOCKED or empty.
func (d Dialect) share(wait string) string {
	if d.shareLock == "" {
		return ""
	}
	return fmt.Sprintf(d.shareLock, wait)
}

// hint returns the text after a table's name that forces an index: the key, so that rows are locked in its
// order; the due index, so that a query reads only its page. It is empty if no index is named.
func (d Dialect) hint(index string) string {
	if d.forceIndex == "" || index == "" {
		return ""
	}
	return fmt.Sprintf(d.forceIndex, mapping.Quote(index))
}

// releaseStock returns an UPDATE that locks the SKUs in the order of the list: the join must
// begin with the list, and use the key. MariaDB fails at the first SKU that another transaction locks, and MySQL waits for it.
// A CASE with a thousand branches would take twice as long.
func releaseStock(s *mapping.Stock, n int) string {
	set, where := ReleaseStock(s, "s.")
	columns, more := mapping.Quote(s.SKU.Column)+" AS sku", ", ?"
	if s.Location.Column != "" {
		columns, more = columns+", "+mapping.Quote(s.Location.Column)+" AS location", ", ?, ?"
	}
	return "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ UPDATE (SELECT " + columns + ", 0 AS quantity FROM " +
		mapping.Quote(s.Table) + " WHERE FALSE" + strings.Repeat(" UNION ALL SELECT ?"+more, n) + ") AS v" +
		" STRAIGHT_JOIN " + mapping.Quote(s.Table) + " AS s FORCE INDEX (" + mapping.Quote(s.SKU.Index) + ")" +
		" ON " + sameRow(s) + " SET " + set + " WHERE " + where
}

// sameRow writes the condition that a row s of the stock is that of a SKU in the list v.
func sameRow(s *mapping.Stock) string {
	on := "s." + mapping.Quote(s.SKU.Column) + " = v.sku"
	if s.Location.Column != "" {
		on += " AND s." + mapping.Quote(s.Location.Column) + " = v.location"
	}
	return on
}

// ReleaseStock returns two parts of an UPDATE of the stock s by a list v of SKUs and quantities: the
// assignments, with the prefix of assigned columns, and the condition on the rows.
func ReleaseStock(s *mapping.Stock, prefix string) (set, where string) {
	set, where = releasing(s, prefix)
	return set + changeLock("s.", s.Version, s.Lock), where
}

func releasing(s *mapping.Stock, prefix string) (set, where string) {
	available, reserved := mapping.Quote(s.Available), mapping.Quote(s.Reserved)
	more := prefix + available + " = s." + available + " + v.quantity"
	less := prefix + reserved + " = s." + reserved + " - v.quantity"
	switch { // NULL plus a quantity is NULL: the stock would be lost
	case s.Reserved == "":
		return more, "v.quantity > 0 AND s." + available + " IS NOT NULL"
	case s.Available == "":
		return less, "s." + reserved + " >= v.quantity"
	}
	return more + ", " + less, "s." + reserved + " >= v.quantity AND s." + available + " IS NOT NULL"
}

// now returns the database's clock as a value in a statement. The server fixes it when the
// statement begins, before lock waits: a wait can only make an order look less due.
func (d Dialect) now() any {
	if d.Clock == nil {
		return gorm.Expr(d.nowSQL)
	}
	return d.time(d.Clock())
}

// millis is now in unix milliseconds, whatever the settings of the connection.
func (d Dialect) millis() any {
	if d.Clock == nil {
		return gorm.Expr(d.millisSQL)
	}
	return d.Clock().UnixMilli()
}

// timeText is time for a connection of the shop, whose driver may write a time in another zone.
func (d Dialect) timeText(t time.Time) any {
	if d.UnixMillis {
		return t.UnixMilli()
	}
	return t.UTC().Format(d.timeLayout)
}

// time returns t as the database stores it, truncated to milliseconds. With more digits one
// server rounds the argument, another truncates it, and a third does not use the index.
func (d Dialect) time(t time.Time) any {
	if d.UnixMillis {
		return t.UnixMilli()
	}
	return t.UTC().Truncate(time.Millisecond)
}

// timeInto scans a time of either kind of database into t, in UTC. NULL is the zero time.
func timeInto(t *time.Time) sql.Scanner {
	return scanner(func(src any) error {
		switch v := src.(type) {
		case time.Time:
			*t = v.UTC()
		case int64:
			*t = time.UnixMilli(v).UTC()
		case nil:
			*t = time.Time{}
		default:
			return fmt.Errorf("cannot read a time from %T %v", src, src)
		}
		return nil
	})
}

// nullable scans text into t; NULL is empty.
func nullable(t *string) sql.Scanner {
	return scanner(func(src any) error {
		var text sql.NullString
		err := text.Scan(src)
		*t = text.String
		return err
	})
}

type scanner func(src any) error

// Scan implements sql.Scanner.
func (s scanner) Scan(src any) error { return s(src) }
