package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderclose"
	"orderclose/internal/tables"
)

// Dialect is what the store has to know of a database beyond the SQL that all of
// them take. It is the one place that knows where "now" comes from and how a
// time is stored.
type Dialect struct {
	// Name names the folder of migrations and goose's dialect.
	Name DialectName
	// Clock is "now" for a database whose own clock is not the one to go by. Nil:
	// the database is asked.
	Clock func() time.Time
	// Fault tells what an error of the driver means.
	Fault func(error) Fault

	// hint has a table be read through an index, whatever the statistics say: by
	// key, so that rows lock in its order; by due time, so that a page is read only.
	hint      func(index string) string
	unindexed string                                                         // before a column, so that no index is chosen for its sake
	lock      string                                                         // appended to a SELECT that locks what it reads
	giveBack  func(s *tables.Stock, n int) string                            // moves stock back for a list of n SKUs and quantities
	spellings func(s *tables.Stock, n int) string                            // of n SKUs, each as it is given and as the stock has it
	hasTable  string                                                         // a query that counts the tables of one name
	tables    string                                                         // a query for the names of tables in a database, LIKE a pattern
	describe  func(context.Context, *sql.DB, []string) (tables.Facts, error) // nil: it is not looked at
	checkZone func(context.Context, *sql.DB) error

	// deleteByID deletes the rows of n ids from a table, and locks no other.
	deleteByID func(table string, n int) string
	// lockWait names the setting of a session that bounds, in seconds, how long a
	// statement waits for the lock of a table; empty: there is none.
	lockWait string
	// oneWriter: a transaction keeps every other one from writing.
	oneWriter bool
}

// DialectName is one of the databases that the store speaks to.
type DialectName string

const (
	// MySQL is MySQL 8 and MariaDB 10.6 or newer.
	MySQL DialectName = "mysql"
	// SQLite stores times as integers, unix milliseconds.
	SQLite DialectName = "sqlite"
)

var mysqlDialect = Dialect{
	Name:      MySQL,
	Fault:     MySQLFault,
	hint:      func(index string) string { return " FORCE INDEX (" + tables.Quote(index) + ")" },
	lock:      " FOR UPDATE",
	giveBack:  mysqlGiveBack,
	spellings: mysqlSpellings,
	hasTable:  "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
	tables:    "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name LIKE ?",
	describe:  describe,
	checkZone: checkZone,
	lockWait:  "lock_wait_timeout",

	deleteByID: mysqlDeleteByID,
}

// SQLiteDialect is the dialect of SQLite, for the package that links it: clock
// is "now", fault reads the driver's errors. SQLite knows no row locks: the
// transaction itself must take the write lock when it begins.
func SQLiteDialect(clock func() time.Time, fault func(error) Fault) Dialect {
	return Dialect{
		Name:  SQLite,
		Clock: clock,
		Fault: fault,
		// Without statistics it takes the index on status and due for a list of ids.
		hint:      func(string) string { return "" },
		unindexed: "+",
		giveBack:  sqliteGiveBack,
		spellings: sqliteSpellings,
		hasTable:  "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		tables:    "SELECT name FROM sqlite_master WHERE type = 'table' AND ? = '' AND name LIKE ?",

		deleteByID: sqliteDeleteByID,
		oneWriter:  true,
	}
}

// mysqlGiveBack locks the SKUs in the order of the list: the join is told to begin
// with it, and to go by key. A CASE of a thousand arms would take twice as long.
func mysqlGiveBack(s *tables.Stock, n int) string {
	set, where := giveBack(s)
	return "UPDATE (SELECT ? AS sku, ? AS quantity" + strings.Repeat(" UNION ALL SELECT ?, ?", n-1) + ") AS v" +
		" STRAIGHT_JOIN " + tables.Quote(s.Table) + " AS s FORCE INDEX (" + tables.Quote(s.SKU.Index) + ")" +
		" ON s." + tables.Quote(s.SKU.Column) + " = v.sku SET " + strings.ReplaceAll(set, "SET:", "s.") + where
}

func sqliteGiveBack(s *tables.Stock, n int) string {
	set, where := giveBack(s)
	return "WITH v (sku, quantity) AS (VALUES (?, ?)" + strings.Repeat(", (?, ?)", n-1) + ")" +
		" UPDATE " + tables.Quote(s.Table) + " AS s SET " + strings.ReplaceAll(set, "SET:", "") +
		" FROM v" + strings.Replace(where, " WHERE ", " WHERE s."+tables.Quote(s.SKU.Column)+" = v.sku AND ", 1)
}

// giveBack is what changes in a row s of the stock by a row v of the list, each
// changed column after SET:, and which rows can change.
func giveBack(s *tables.Stock) (set, where string) {
	available, reserved := tables.Quote(s.Available), tables.Quote(s.Reserved)
	set = "SET:" + available + " = s." + available + " + v.quantity"
	if s.Reserved == "" {
		return set, " WHERE v.quantity > 0"
	}
	// NULL and a quantity is NULL: the stock would leave reserved and never come back.
	return set + ", SET:" + reserved + " = s." + reserved + " - v.quantity", " WHERE s." + reserved + " >= v.quantity AND s." + available + " IS NOT NULL"
}

// mysqlSpellings compares as mysqlGiveBack does.
func mysqlSpellings(s *tables.Stock, n int) string {
	sku := "s." + tables.Quote(s.SKU.Column)
	return "SELECT v.sku, " + sku + " FROM (SELECT ? AS sku" + strings.Repeat(" UNION ALL SELECT ?", n-1) + ") AS v" +
		" STRAIGHT_JOIN " + tables.Quote(s.Table) + " AS s FORCE INDEX (" + tables.Quote(s.SKU.Index) + ") ON " + sku + " = v.sku"
}

func sqliteSpellings(s *tables.Stock, n int) string {
	sku := "s." + tables.Quote(s.SKU.Column)
	return "WITH v (sku) AS (VALUES (?)" + strings.Repeat(", (?)", n-1) + ")" +
		" SELECT v.sku, " + sku + " FROM v JOIN " + tables.Quote(s.Table) + " AS s ON " + sku + " = v.sku"
}

// now is the database's clock as a value in a statement. MySQL fixes it when the
// statement begins, before it waits for locks: the wait can only make an order
// look less due.
func (d Dialect) now() any {
	if d.Clock == nil {
		return gorm.Expr("UTC_TIMESTAMP(3)") // never NOW(3), which is in the session's zone
	}
	return d.time(d.Clock())
}

// time is t as the database stores it, cut to milliseconds: an argument with
// more would be rounded by one server, truncated by the other, and not find the
// index on a third.
func (d Dialect) time(t time.Time) any {
	if d.Name == SQLite {
		return t.UnixMilli()
	}
	return t.UTC().Truncate(time.Millisecond)
}

// timeInto scans a time that either kind of database stored into t, in UTC. NULL
// is the zero time.
func timeInto(t *time.Time) sql.Scanner { return (*scannedTime)(t) }

type scannedTime time.Time

// Scan implements sql.Scanner.
func (t *scannedTime) Scan(src any) error {
	switch v := src.(type) {
	case time.Time:
		*t = scannedTime(v.UTC())
	case int64:
		*t = scannedTime(time.UnixMilli(v).UTC())
	case nil:
		*t = scannedTime{}
	default:
		return fmt.Errorf("a time came as %T: %v", src, src)
	}
	return nil
}

// nullable scans text into t; NULL is empty.
func nullable(t *string) sql.Scanner { return (*scannedText)(t) }

type scannedText string

// Scan implements sql.Scanner.
func (t *scannedText) Scan(src any) error {
	var text sql.NullString
	err := text.Scan(src)
	*t = scannedText(text.String)
	return err
}

// ErrZone says that a connection's session is not in UTC although it was told to
// be, as a proxy in between may bring about.
var ErrZone = errors.New("the session's time zone is not UTC")

const zoneQuery = "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CURRENT_TIMESTAMP())"

func checkZone(ctx context.Context, db *sql.DB) error {
	var off int64
	if err := db.QueryRowContext(ctx, zoneQuery).Scan(&off); err != nil {
		return err
	}
	return zoneError(off)
}

func zoneError(off int64) error {
	if off == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w: it is %v off; is there a proxy that drops SET time_zone?",
		orderclose.ErrUnavailable, ErrZone, time.Duration(off)*time.Second)
}
