package db

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// Dialect names everything that differs between databases: SQL, how a value is stored, and what the database can do. Each database has a
// file with its operations: mysql.go, postgres.go, and dialect.go of package sqlite. Nothing else asks which database it is. If a text, a
// list or a function is missing, the database needs no such operation.
type Dialect struct {
	// Name is that of the folder of migrations.
	Name DialectName
	// TellsTables says that the database tells the definitions of tables. Else mappings are not checked, and no close is tried.
	TellsTables bool
	// Times has the type and the precision of times in the tables that Migrate creates; without a type, those of the reference mapping.
	Times mapping.TimeColumn
	// LocalTime is the type, as the driver names it, of a column with a date and time and without a zone.
	LocalTime string
	// OneWriter says that the database has one write transaction at a time, and locks no rows.
	OneWriter bool
	// Clock is the clock of a database in this process. A server has its own one.
	Clock func() time.Time
	// Now is the database's clock as a value in a statement, in UTC and milliseconds. The server fixes it when the statement begins, before
	// lock waits: a wait can only make an order look less due. Millis is the same in unix milliseconds, whatever the settings of the
	// connection.
	Now, Millis func() any
	// Fault returns the cause of an error of the driver.
	Fault func(error) Fault

	// The following strings, and the results of the functions with a string result, are SQL.

	MicrosSQL  string // a column with a date and time as if in UTC, %s, in unix microseconds
	TimeLayout string // of Dialect.TimeText
	Bigint     string // the type of 64 bits in a CAST
	TextSQL    string // an expression, %s, as text, for a comparison with our own columns
	BytesSQL   string // the same for a comparison in which spaces at the end count
	// Backslash says that a backslash in a text is written twice.
	Backslash bool
	// FoldsNames says that the database reads names without quotes in lower case.
	FoldsNames bool
	// Unsigned says that whole numbers of 64 bits may have no sign.
	Unsigned  bool
	Unindexed string // written before a column, so that no index on it is used
	// ReleaseStock returns an UPDATE that releases n SKUs. Its arguments are n times a SKU, its location if the
	// stock has one, and a quantity; and then the lock of the rows.
	ReleaseStock func(s *mapping.Stock, n int) string
	// ReleaseWaits is a query whether ReleaseStock waits for locked rows on this server: MySQL waits, MariaDB does not.
	ReleaseWaits string
	Triggers     func(tables []string) string // an expression: how many triggers tables have, or this session has executed
	HasTable     string                       // a query that counts the tables of one name
	HereSQL      string                       // the name of the database, in PostgreSQL of the schema
	HomeSQL      string                       // an expression: where a connection finds the table receipts
	// InTxSQL has three expressions: the isolation of a transaction if it can be read, whether row-level security may hide receipts or late
	// payments from it, and one without a meaning.
	InTxSQL string
	Tables  string // a query for the names of tables in a database, LIKE a pattern
	// DeleteByID returns a DELETE of rows, which locks no other row. Its argument is the list of
	// their ids, in JSON.
	DeleteByID func(table string) string
	// Dispatch shares the rows of an outbox among dispatchers, and returns how many rows it read. Else a dispatcher locks its rows in a
	// transaction, and others skip them.
	Dispatch func(context.Context, Dispatching) (rows int, err error)
	// SessionLock takes a lock on a connection of its own; release is nil if another connection has it. held ends when the lock is lost. The
	// server gives the lock away when it has heard nothing of this connection for 15 s.
	SessionLock func(ctx context.Context, db *sql.DB, name string) (held context.Context, release func(context.Context), err error)
	// OnTx returns a statement with its arguments as a transaction of a program takes them, if the drivers do not take them as they are.
	OnTx       func(query string, args []any) (string, []any)
	OnConflict string // begins the assignments of an INSERT to the row that has its keys, %s, already
	Given      string // the value, in these assignments, of the INSERT for the column %s
	JSONArray  string // the function that returns a JSON array of its arguments
	ReadOnly   string // a query whether the server takes no writes
	Version    string // a query for what the server says it is
	// Variables is a query for the names and values of the server's variables. If it lists those that no session has, SessionVariable is
	// before the name of a variable in a query that then fails.
	Variables, SessionVariable string
	// Silence returns a query for the settings with which a session waits too long for a client that has disappeared.
	Silence func() string
	// Unsafe returns a setting with which a crash of the server loses transactions that it has confirmed, and what to do.
	Unsafe func(tx *gorm.DB) (string, error)
	// RowSecurity reports whether row-level security may hide rows of a table of a schema from this user; "": the current one.
	RowSecurity func(tx *gorm.DB, schema, table string) (bool, error)
	ForceIndex  string // the text after a table's name that forces the index %s, whatever the statistics say
	ForUpdate   string // appended to a SELECT that locks what it reads
	SkipLocked  string // ForUpdate for a SELECT that leaves out the rows that other transactions lock
	ShareLock   string // appended to a SELECT that keeps others from changing what it reads; %s is NOWAIT, SKIP LOCKED or empty
	// NoWait is written before an UPDATE that must not wait for a lock: MariaDB executes this comment, and then fails at the first row, or
	// entry of an index, that another transaction locks. MySQL waits.
	NoWait string
	// LockName is a query for what a connection waits for, if the server has another one to ask: its argument is the number of the connection,
	// which Connection asks for.
	LockName, Connection string
	// EntryLocks says that the server locks an entry of an index apart from its row.
	EntryLocks bool
	// FailFast are statements that a close executes before ReleaseStock. Then ReleaseStock waits for a locked row for a millisecond, and
	// fails. They also set the savepoint stock, to which the transaction goes back after that failure. Without them, ReleaseStock fails fast,
	// and InTransaction asks whether the transaction is still open.
	FailFast, InTransaction string
	// LocksOldRows says that a SELECT that locks rows reads them as of its beginning, or as of that of a REPEATABLE READ transaction. A row
	// that another transaction adds while the SELECT waits is missing in its result. Elsewhere the SELECT reads the last commit.
	LocksOldRows bool
	// RowTable is an expression: the table that has a row. In PostgreSQL that may be one that inherits from the table of the query.
	RowTable string
	Settle   string // a statement that runs the deferred triggers of a transaction, where there are such
	// Describe returns the definition of a table of a database ("": the connection's), and false if the user sees no such table.
	Describe func(tx *gorm.DB, database, table string) (t mapping.Table, ok bool, err error)
	// Rows writes rows of a width for an INSERT, with its arguments.
	Rows func(width int, args []any) (list string, of []any)
	// ScannedTable returns a table that a statement would read as a whole, without executing it.
	ScannedTable func(ctx context.Context, db *gorm.DB, query string) (table string, err error)
	// Distinct returns a query for the values of a column of a table.
	Distinct func(column, table string) string
	// ShortWaits are statements that bound each wait of a transaction for a lock by a second. The settings may
	// outlast the transaction, but not its connection.
	ShortWaits []string
	// Snapshot has the options of a transaction that reads everything as of its beginning.
	Snapshot *sql.TxOptions
	// LimitedRead has the options of a transaction in which the server ends a SELECT in time. Nil: it does so without a transaction.
	LimitedRead *sql.TxOptions
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

// ServerDialects are the dialects of servers.
var ServerDialects = map[DialectName]Dialect{MySQL: MySQLDialect, Postgres: PostgresDialect}

// Literal writes a number, a text or an expression into a statement.
func (d Dialect) Literal(value any) string {
	text, is := value.(string)
	if e, isSQL := value.(clause.Expr); isSQL {
		return e.SQL
	} else if !is {
		return fmt.Sprint(value)
	}
	if d.Backslash {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// Folded returns a statement with its names as the database reads them. Its texts may change too.
func (d Dialect) Folded(statement string) string {
	parts := strings.Split(statement, `"`)
	for i := 0; d.FoldsNames && i < len(parts); i += 2 { // outside of quotes
		parts[i] = strings.ToLower(parts[i])
	}
	return strings.Join(parts, `"`)
}

// Replace is Upsert that sets the columns to the values of the INSERT.
func (d Dialect) Replace(table string, keys []string, columns ...string) string {
	return d.Upsert(table, keys, columns, func(_, given func(column string) string, column string) string { return given(column) })
}

// Upsert returns an INSERT of one row with values of keys and columns. If the keys have a row, it sets its columns to what set returns: row
// writes the old value of a column, and given that of the INSERT.
func (d Dialect) Upsert(table string, keys, columns []string, set func(row, given func(column string) string, column string) string) string {
	row := func(column string) string { return table + "." + column }
	given := func(column string) string { return strings.ReplaceAll(d.Given, "%s", column) }
	assignments := make([]string, len(columns))
	for i, c := range columns {
		assignments[i] = c + " = " + set(row, given, c)
	}
	all := slices.Concat(keys, columns)
	return "INSERT INTO " + table + " (" + strings.Join(all, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(all)-1) + ")" +
		strings.ReplaceAll(d.OnConflict, "%s", strings.Join(keys, ", ")) + strings.Join(assignments, ", ")
}

// Share returns the text after a SELECT that keeps others from changing what it reads. wait is NOWAIT, SKIP LOCKED or empty.
func (d Dialect) Share(wait string) string { return strings.ReplaceAll(d.ShareLock, "%s", wait) }

// Hint returns the text after a table's name that forces an index: the key, so that rows are locked in its
// order; the due index, so that a query reads only its page. It is empty if no index is named.
func (d Dialect) Hint(index string) string {
	if index == "" {
		return ""
	}
	return strings.ReplaceAll(d.ForceIndex, "%s", mapping.Quote(index))
}

// OnConflict and Excluded are Dialect.OnConflict and Dialect.Given of PostgreSQL and of SQLite.
const OnConflict, Excluded = " ON CONFLICT (%s) DO UPDATE SET ", "EXCLUDED.%s"

// GroupBy is Dialect.Distinct of a database that needs no other query.
func GroupBy(column, table string) string {
	return "SELECT " + column + " FROM " + table + " GROUP BY " + column
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
	lock := changeLock("s.", s.Version, s.Lock)
	available, reserved := mapping.Quote(s.Available), mapping.Quote(s.Reserved)
	more := prefix + available + " = s." + available + " + v.quantity"
	less := prefix + reserved + " = s." + reserved + " - v.quantity"
	switch { // NULL plus a quantity is NULL: the stock would be lost
	case s.Reserved == "":
		return more + lock, "v.quantity > 0 AND s." + available + " IS NOT NULL"
	case s.Available == "":
		return less + lock, "s." + reserved + " >= v.quantity"
	}
	return more + ", " + less + lock, "s." + reserved + " >= v.quantity AND s." + available + " IS NOT NULL"
}

// TimeText is time for a connection of the shop, whose driver may write a time in another zone.
func (d Dialect) TimeText(t time.Time) any {
	if d.Times.Type == mapping.UnixMillis {
		return t.UnixMilli()
	}
	return t.UTC().Format(d.TimeLayout)
}

// Time returns t as the database stores it, truncated to milliseconds. With more digits one
// server rounds the argument, another truncates it, and a third does not use the index.
func (d Dialect) Time(t time.Time) any {
	if d.Times.Type == mapping.UnixMillis {
		return t.UnixMilli()
	}
	return t.UTC().Truncate(time.Millisecond)
}

// TimeInto scans a time of either kind of database into t, in UTC. NULL is the zero time.
func TimeInto(t *time.Time) sql.Scanner {
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

// Nullable scans text into t; NULL is empty.
func Nullable(t *string) sql.Scanner {
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

// Dispatching is one dispatch of the rows of an outbox.
type Dispatching struct {
	Limit int // how many rows Publish gets at most
	// Read also reports whether it left rows of the first limit ones, because they have too many bytes together.
	Read    func(limit int) (rows []wire.OutboxRow, left bool, err error)
	Publish func(rows []wire.OutboxRow) (done []int64)
	Delete  func(ids []int64) error
}
