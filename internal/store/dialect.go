package store

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Dialect holds what differs between databases: their SQL, the source of the current time, and
// how a time is stored.
type Dialect struct {
	// Name is the folder of migrations.
	Name DialectName
	// Clock returns the current time, for a database without a clock of its own. Nil: the
	// database's clock is read.
	Clock func() time.Time
	// Fault returns the cause of an error of the driver.
	Fault func(error) Fault

	// The following strings, and the results of the functions with a string result, are SQL.

	// hint returns the text after a table's name that forces an index, whatever the statistics
	// say: the key, so that rows are locked in its order; the due index, so that a query reads
	// only its page.
	hint      func(index string) string
	unindexed string // written before a column, so that no index on it is used
	lock      string // appended to a SELECT that locks what it reads
	// skipLocked is lock for a SELECT that leaves out the rows that other transactions lock.
	skipLocked string
	shareLock  string // appended to a SELECT that keeps others from changing what it reads
	// releaseStock returns an UPDATE that releases n SKUs. Its arguments are n pairs of a SKU
	// and a quantity.
	releaseStock func(s *mapping.Stock, n int) string
	hasTable     string // a query that counts the tables of one name
	tables       string // a query for the names of tables in a database, LIKE a pattern
	// deleteByID returns a DELETE of rows, which locks no other row. Its argument is the list of
	// their ids, in JSON.
	deleteByID func(table string) string

	// describe returns the definitions of the tables with these names. Nil: mappings are not
	// checked.
	describe func(tx *gorm.DB, names []string) (mapping.Schema, error)
	// lockWait is the session variable that bounds, in seconds, how long a statement waits
	// for a table lock; empty: there is none.
	lockWait string
	// oneWriter says that the database has one write transaction at a time.
	oneWriter bool
}

// DialectName names a kind of database.
type DialectName string

const (
	// MySQL is MySQL 8 and MariaDB 10.6 or newer.
	MySQL DialectName = "mysql"
	// SQLite stores times as integers, unix milliseconds.
	SQLite DialectName = "sqlite"
)

var mysqlDialect = Dialect{
	Name:         MySQL,
	Fault:        MySQLFault,
	hint:         func(index string) string { return " FORCE INDEX (" + mapping.Quote(index) + ")" },
	lock:         " FOR UPDATE",
	skipLocked:   " FOR UPDATE SKIP LOCKED", // MariaDB since 10.6
	shareLock:    " LOCK IN SHARE MODE",     // MariaDB has no FOR SHARE
	releaseStock: mysqlReleaseStock,
	hasTable:     "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
	tables:       "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name LIKE ?",
	describe:     describe,
	lockWait:     "lock_wait_timeout",

	deleteByID: mysqlDeleteByID,
}

// SQLiteDialect returns the dialect of SQLite, for the package that links it. clock is the
// current time, and fault reads the driver's errors. SQLite has no row locks: the transaction
// must take the write lock when it begins.
func SQLiteDialect(clock func() time.Time, fault func(error) Fault) Dialect {
	return Dialect{
		Name:  SQLite,
		Clock: clock,
		Fault: fault,
		// Without statistics, SQLite uses the index on status and due for a list of ids.
		hint:         func(string) string { return "" },
		unindexed:    "+",
		releaseStock: sqliteReleaseStock,
		hasTable:     "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		tables:       "SELECT name FROM sqlite_master WHERE type = 'table' AND ? = '' AND name LIKE ?",

		deleteByID: sqliteDeleteByID,
		oneWriter:  true,
	}
}

// mysqlReleaseStock returns an UPDATE that locks the SKUs in the order of the list: the join must
// begin with the list, and use the key. A CASE with a thousand branches would take twice as long.
func mysqlReleaseStock(s *mapping.Stock, n int) string {
	set, where := releaseStock(s)
	return "UPDATE (SELECT ? AS sku, ? AS quantity" + strings.Repeat(" UNION ALL SELECT ?, ?", n-1) + ") AS v" +
		" STRAIGHT_JOIN " + mapping.Quote(s.Table) + " AS s FORCE INDEX (" + mapping.Quote(s.SKU.Index) + ")" +
		" ON s." + mapping.Quote(s.SKU.Column) + " = v.sku SET " + strings.ReplaceAll(set, "SET:", "s.") + where
}

func sqliteReleaseStock(s *mapping.Stock, n int) string {
	set, where := releaseStock(s)
	return "WITH v (sku, quantity) AS (VALUES (?, ?)" + strings.Repeat(", (?, ?)", n-1) + ")" +
		" UPDATE " + mapping.Quote(s.Table) + " AS s SET " + strings.ReplaceAll(set, "SET:", "") +
		" FROM v" + strings.Replace(where, " WHERE ", " WHERE s."+mapping.Quote(s.SKU.Column)+" = v.sku AND ", 1)
}

// releaseStock returns two parts of an UPDATE of the stock s by a list v of SKUs and quantities.
// set has the assignments, with the placeholder SET: before each assigned column, for
// which MySQL takes "s." and SQLite takes nothing. where is the condition on the rows.
func releaseStock(s *mapping.Stock) (set, where string) {
	available, reserved := mapping.Quote(s.Available), mapping.Quote(s.Reserved)
	more := "SET:" + available + " = s." + available + " + v.quantity"
	less := "SET:" + reserved + " = s." + reserved + " - v.quantity"
	switch {
	case s.Reserved == "":
		return more, " WHERE v.quantity > 0"
	case s.Available == "":
		return less, " WHERE s." + reserved + " >= v.quantity"
	}
	// NULL plus a quantity is NULL: the stock would leave reserved and be lost.
	return more + ", " + less, " WHERE s." + reserved + " >= v.quantity AND s." + available + " IS NOT NULL"
}

// now returns the database's clock as a value in a statement. MySQL fixes it when the
// statement begins, before lock waits: a wait can only make an order look less due.
func (d Dialect) now() any {
	if d.Clock == nil {
		return gorm.Expr("UTC_TIMESTAMP(3)") // never NOW(3), which is in the session's zone
	}
	return d.time(d.Clock())
}

// time returns t as the database stores it, truncated to milliseconds. With more digits one
// server rounds the argument, another truncates it, and a third does not use the index.
func (d Dialect) time(t time.Time) any {
	if d.Name == SQLite {
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
