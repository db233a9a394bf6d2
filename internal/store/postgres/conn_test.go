package postgres

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// After a deadline the driver waits, for some seconds, until the server has closed the connection.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// serverDSN returns the DSN of the PostgreSQL server that the environment names. Without a server it skips or fails the test.
func serverDSN(t *testing.T) string {
	t.Helper()
	const variable = "ORDERCLOSE_POSTGRES_DSN"
	dsn := os.Getenv(variable)
	switch {
	case dsn != "":
	case os.Getenv("REQUIRE_REAL") == "1":
		t.Fatalf("%s names no server, and REQUIRE_REAL=1 wants one", variable)
	default:
		t.Skipf("%s names no server", variable)
	}
	return dsn
}

// connect opens a pool on the server, with statements that end after limit.
func connect(t *testing.T, limit time.Duration) *sql.DB {
	t.Helper()
	c := must.Get(ParseDSN(serverDSN(t), nil))(t)
	c.Limit = limit
	db := sql.OpenDB(c.Connector())
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A role may have other defaults.
func TestConn_ATransactionHasItsOwnSettings(t *testing.T) {
	db := connect(t, answerLimit)
	db.SetMaxOpenConns(1)
	must.Get(db.ExecContext(t.Context(), "SET default_transaction_isolation = 'serializable'; SET lock_timeout = 0"))(t)
	for _, row := range []struct {
		o    *sql.TxOptions
		want string
	}{
		{nil, "read committed 1s off UTC"},
		{&sql.TxOptions{Isolation: sql.LevelReadCommitted}, "read committed 1s off UTC"},
		{&sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, "repeatable read 1s on UTC"},
	} {
		tx := must.Get(db.BeginTx(t.Context(), row.o))(t)
		var isolation, wait, readOnly, zone string
		err := tx.QueryRowContext(t.Context(), "SELECT current_setting('transaction_isolation'), current_setting(?), current_setting('transaction_read_only'), "+
			"current_setting('TimeZone')", "lock_timeout").
			Scan(&isolation, &wait, &readOnly, &zone)
		got := strings.Join([]string{isolation, wait, readOnly, zone}, " ")
		expect.That(t, err == nil && got == row.want, "a transaction has %s, %v; want %s", got, err, row.want)
		expect.NoError(t, tx.Commit())
	}
	var wait string
	if err := db.QueryRowContext(t.Context(), "SHOW lock_timeout").Scan(&wait); err != nil || wait != "0" {
		t.Errorf("after the transactions the session has a lock_timeout of %s, %v", wait, err)
	}
}

// A COMMIT after a failed statement rolls back, and the server reports that as a success.
func TestConn_ACommitThatRollsBackIsAnError(t *testing.T) {
	db := connect(t, answerLimit)
	tx := must.Get(db.BeginTx(t.Context(), nil))(t)
	_, err := tx.ExecContext(t.Context(), "SELECT 1/0")
	must.That(t, Code(err) == "22012", "%v", err)
	expect.That(t, tx.Commit() != nil, "the commit was a success")
}

func TestConn_AStatementEndsAfterTheLimit(t *testing.T) {
	db := connect(t, 300*time.Millisecond)
	_, err := db.ExecContext(t.Context(), "SELECT pg_sleep(600)")
	expect.That(t, IsConnection(err), "an exec: %v", err)
	rows, err := db.QueryContext(t.Context(), "SELECT pg_sleep(600)")
	if err == nil {
		_ = rows.Close()
	}
	expect.That(t, IsConnection(err), "a query: %v", err)
	ctx := context.WithValue(t.Context(), Unlimited{}, true)
	expect.Is(t, expect.Err(db.ExecContext(ctx, "SELECT pg_sleep(0.4)")), nil, "a statement without a limit")
}

// silentConn is a connection whose writes vanish once silent is closed.
type silentConn struct {
	net.Conn
	silent chan struct{}
}

func (c silentConn) Write(b []byte) (int, error) {
	select {
	case <-c.silent:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func TestConn_ACommitWithoutAnAnswerEnds(t *testing.T) {
	c := must.Get(ParseDSN(serverDSN(t), nil))(t)
	silent := make(chan struct{})
	dial := c.conn.DialFunc
	var first net.Conn
	c.conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		select {
		case <-silent: // the driver asks to cancel the statement, on a connection of its own
			return conn, err
		default:
			first = conn
			return silentConn{conn, silent}, err
		}
	}
	c.Limit = 300 * time.Millisecond
	db := sql.OpenDB(c.Connector())
	defer func() { _ = db.Close() }()
	defer func() { _ = first.Close() }() // the COMMIT has its answer
	tx := must.Get(db.BeginTx(t.Context(), nil))(t)
	close(silent)
	if err := tx.Commit(); !IsConnection(err) {
		t.Errorf("the commit: %v", err)
	}
}

func TestJudge_RefusesWhatDoesNotFit(t *testing.T) {
	for _, row := range []struct {
		row  string
		want error
		text string
	}{
		{"PostgreSQL 13.0 on x|130000|f|UTC|ISO, MDY|UTF8|", nil, ""},
		{"PostgreSQL 12.22 on x|120022|f|UTC|ISO, MDY|UTF8|", ErrServer, "it is PostgreSQL 12.22 on x; use PostgreSQL 13 or newer"},
		{"PostgreSQL 8.0.2 on x, Redshift 1.0|80002|f|UTC|ISO, MDY|UTF8|", ErrServer, "never tested"},
		{"CockroachDB CCL v25.1|130000|f|UTC|ISO, MDY|UTF8|", ErrServer, "it is CockroachDB CCL v25.1, on which orderclose was never tested"},
		{"PostgreSQL 17|170000|t|UTC|ISO, MDY|UTF8|", ErrStandby, "name the primary in the DSN, or all servers"},
		{"PostgreSQL 17|170000|f|Asia/Shanghai|ISO, MDY|UTF8|", ErrZone, "it is Asia/Shanghai; check for a pooler"},
		{"PostgreSQL 17|170000|f|UTC|ISO, MDY|UTF8|standard_conforming_strings is off, not on", ErrServer, "standard_conforming_strings is off"},
		{"PostgreSQL 17|170000|f|UTC|ISO, MDY|SQL_ASCII|", ErrServer, "restore it into one with ENCODING 'UTF8'"},
		{"PostgreSQL 17|170000|f|UTC|SQL, DMY|UTF8|", ErrServer, "DateStyle is SQL, DMY"},
	} {
		var values [][]byte
		for v := range strings.SplitSeq(row.row, "|") {
			values = append(values, []byte(v))
		}
		err := judge(values)
		expect.That(t, errors.Is(err, row.want) && (err == nil || strings.Contains(err.Error(), row.text)), "%s: %v", row.row, err)
	}
}

func TestExplain_SaysWhatToDo(t *testing.T) {
	pg := func(code, message string) error {
		return &pgconn.PgError{Severity: "FATAL", Code: code, Message: message}
	}
	for _, row := range []struct {
		err  error
		tls  *tls.Config
		want string
	}{
		{errors.New("server refused TLS connection"), &tls.Config{}, "TLS to the database server failed; docs/security.md, TLS, "},
		{pg("28000", "no pg_hba.conf entry for host"), nil, "refuses the user; check user and password, pg_hba.conf, and TLS"},
		{pg("28P01", "password authentication failed"), nil, "refuses the user; check user and password"},
		{pg("08P01", "unsupported startup parameter: search_path"), nil, "the pooler (PgBouncer) refuses a parameter of the DSN; remove it"},
		{io.EOF, &tls.Config{}, "EOF"},
		{pg("3D000", "database does not exist"), nil, "FATAL: database does not exist"},
	} {
		err := explain(row.err, row.tls)
		expect.That(t, strings.Contains(err.Error(), row.want) && errors.Is(err, row.err), "%v: %v", row.err, err)
	}
}

func TestIsConnection_LeavesOtherErrorsToTheStore(t *testing.T) {
	for _, err := range []error{driver.ErrBadConn, io.EOF} {
		expect.That(t, Code(err) == "" && !IsConnection(err), "%v counts as an error of pgx", err)
	}
}
