package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// conn is a connection that takes the statements of the store.
type conn struct {
	*stdlib.Conn
	limit time.Duration // of each statement; 0: none
	inTx  string        // the settings of each transaction
	left  *leftCommits  // is shared by all connections of a pool
	// answered is nil until a COMMIT takes longer than limit. It is closed when that COMMIT has an answer. Until then
	// nothing else may use the connection.
	answered chan struct{}
}

// leftCommits counts the COMMITs of a pool that took longer than the limit and still have no answer.
type leftCommits struct{ n atomic.Int32 }

// maxLeftCommits bounds the connections of a pool that are open only because a COMMIT has no answer.
const maxLeftCommits = 8

// err returns an error if there are so many that no connection should be added.
func (l *leftCommits) err() error {
	if n := l.n.Load(); n >= maxLeftCommits {
		return fmt.Errorf("%d transactions wait for the server to confirm them, and no more connections are made meanwhile; does the synchronous standby answer", n)
	}
	return nil
}

func newConn(of driver.Conn, config *Config, left *leftCommits) (*conn, error) {
	c, ok := of.(*stdlib.Conn)
	if !ok {
		_ = of.Close()
		return nil, fmt.Errorf("the connection %T is not that of pgx", of)
	}
	return &conn{Conn: c, limit: config.Limit, inTx: config.inTx(), left: left}, nil
}

// Unlimited is the key of a context whose statements have no deadline.
type Unlimited struct{}

// limited returns a context that ends with the deadline of a statement; limit 0: without one. A driver may have no
// read timeout: without a deadline, a statement on a connection that was silently dropped would wait for many
// minutes. After the deadline the driver of PostgreSQL asks the server to cancel the statement, and closes the
// connection. The server gets no statement_timeout: it would end the wait of a COMMIT for a synchronous standby, and
// the COMMIT would succeed.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 || ctx.Value(Unlimited{}) != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// quoted is the first argument of each statement with arguments: pgx then passes them as quoted literals.
const quoted = pgx.QueryExecModeSimpleProtocol

func withMode(args []driver.NamedValue) []driver.NamedValue {
	return append([]driver.NamedValue{{Ordinal: 1, Value: quoted}}, args...)
}

// translated is Translate for a statement with arguments.
func translated[T any](query string, args []T, value func(T) any) string {
	large := func(arg T) bool {
		n, ok := value(arg).(int64)
		return ok && int64(int32(n)) != n
	}
	if !slices.ContainsFunc(args, large) {
		return Translate(query)
	}
	return translate(query, func(n int) bool { return n <= len(args) && large(args[n-1]) })
}

func named(arg driver.NamedValue) any { return arg.Value }

func plain(arg any) any { return arg }

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := limited(ctx, c.limit)
	defer cancel()
	return c.Conn.ExecContext(ctx, translated(query, args, named), withMode(args))
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := limited(ctx, c.limit)
	end, err := c.limitInServer(ctx, query)
	if err != nil {
		cancel()
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, translated(query, args, named), withMode(args))
	of, ok := rows.(*stdlib.Rows)
	if err != nil || !ok {
		end()
		cancel()
		return rows, err
	}
	return limitedRows{of, func() { end(); cancel() }}, nil
}

// limitedRows are rows whose statement's deadline ends with Close.
type limitedRows struct {
	*stdlib.Rows
	end func()
}

// Close implements driver.Rows.
func (r limitedRows) Close() error {
	defer r.end()
	return r.Rows.Close()
}

// limitInServer begins a transaction with the StatementTimeout of a context for a SELECT that is in none: a setting of the session
// would be that of another client behind a pooler. end ends the transaction.
func (c *conn) limitInServer(ctx context.Context, query string) (end func(), err error) {
	timeout, ok := ctx.Value(StatementTimeout{}).(time.Duration)
	if !ok || c.Conn.Conn().PgConn().TxStatus() != idle || !strings.HasPrefix(query, "SELECT ") {
		return func() {}, nil
	}
	tx, err := c.begin(ctx, "BEGIN"+inServer(timeout)) // not READ ONLY: it may lock rows
	return func() { _ = tx.Rollback(ctx) }, err
}

// begin begins a transaction.
func (c *conn) begin(ctx context.Context, query string) (pgx.Tx, error) {
	of := c.Conn.Conn()
	if of.IsClosed() {
		return nil, driver.ErrBadConn
	}
	t, err := of.BeginTx(ctx, pgx.TxOptions{BeginQuery: query})
	if pgconn.SafeToRetry(err) {
		return nil, driver.ErrBadConn
	}
	return t, err
}

// idle is the status of a connection without a transaction.
const idle = 'I'

// inServer sets a limit for the statements of a transaction.
func inServer(limit time.Duration) string {
	return fmt.Sprintf("; SET LOCAL idle_in_transaction_session_timeout = '%s'; SET LOCAL statement_timeout = %d", Silence, limit.Milliseconds())
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	ctx, cancel := limited(ctx, c.limit)
	defer cancel()
	return c.Conn.Ping(ctx)
}

// ResetSession implements driver.SessionResetter. It asks the server if the connection was idle.
func (c *conn) ResetSession(ctx context.Context) error {
	ctx, cancel := limited(ctx, c.limit)
	defer cancel()
	return c.Conn.ResetSession(ctx)
}

// inTx are the settings of every transaction. A setting of the session would be that of another client behind a pooler.
// Statements find their rows by an index: without statistics, or with those of a table that was empty an hour ago,
// the planner may choose to read the whole table. So it does for 500 keys of 40,000 rows, which takes twice as long.
// A small table without an index then costs so much on paper that the planner would compile the statement, which takes longer than to execute it.
// A statement_timeout of the server or of the user would end the wait of a COMMIT for a synchronous standby, and the COMMIT would succeed.
// A client that has disappeared says nothing more: then the transaction ends after Silence, and no checkout or payment waits longer for its locks.
const inTx = "; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '" +
	Silence + "'; SET LOCAL lock_timeout = "

// Silence is how long the server waits in a transaction for the next statement, or for the client to take rows.
const Silence = "15s"

func (c *Config) inTx() string {
	settings := inTx + "'" + c.lockWait + "'"
	if !c.HidesRows { // rows that policies hide are an error: a close would not return the stock of hidden lines
		settings += "; SET LOCAL row_security = off" //mutant:hidden-lines-lost
	}
	return settings
}

// StatementTimeout is the key of a context. Its value is after how long the server ends each SELECT outside of a transaction, and each
// statement of a transaction that only reads.
type StatementTimeout struct{}

// RaiseCommit is an expression that makes a transaction wait until its COMMIT is on disk, if the server or the user has turned that
// off. Otherwise a crash of the server would lose a close whose event is published. Every other value stays as it is.
const RaiseCommit = "CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"

// BeginTx implements driver.ConnBeginTx. One round trip begins a transaction and sets its longest wait for a lock.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	begin := "BEGIN ISOLATION LEVEL READ COMMITTED"
	switch sql.IsolationLevel(o.Isolation) {
	case sql.LevelDefault, sql.LevelReadCommitted, sql.LevelReadUncommitted: // PostgreSQL shows no uncommitted rows
	case sql.LevelRepeatableRead:
		begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	default:
		return nil, fmt.Errorf("a transaction cannot have the isolation %v", sql.IsolationLevel(o.Isolation))
	}
	if o.ReadOnly {
		begin += " READ ONLY"
	}
	begin += c.inTx
	if timeout, ok := ctx.Value(StatementTimeout{}).(time.Duration); ok && o.ReadOnly {
		begin += inServer(timeout)
	}
	bounded, cancel := limited(ctx, c.limit)
	defer cancel()
	t, err := c.begin(bounded, begin+"; SELECT "+RaiseCommit)
	if err != nil {
		return nil, err
	}
	return transaction{context.WithoutCancel(ctx), t, c}, nil
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return c.answered == nil }

// Close implements driver.Conn. It waits in the background for the answer to a COMMIT.
func (c *conn) Close() error {
	if c.answered == nil {
		return c.Conn.Close()
	}
	go func() { <-c.answered; _ = c.Conn.Close() }()
	return nil
}

// transaction is a transaction of a conn. Its COMMIT has a limit too.
type transaction struct {
	ctx context.Context
	of  pgx.Tx
	c   *conn
}

// Commit waits for the answer for at most limit. After that it returns an error, and the COMMIT goes on: its connection
// stays open until the server answers. A context with a deadline would not do. The driver would then ask the
// server to cancel the COMMIT. If the COMMIT waits for a synchronous standby, a cancelled one shows its
// changes to other sessions, although a failover may lose them.
func (t transaction) Commit() error {
	if t.c.limit == 0 || t.ctx.Value(Unlimited{}) != nil {
		return t.of.Commit(t.ctx)
	}
	ended, answered := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- t.of.Commit(t.ctx)
		close(answered)
	}()
	limit := time.NewTimer(t.c.limit)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		t.c.answered = answered
		t.c.left.n.Add(1)
		go func() { <-answered; t.c.left.n.Add(-1) }()
		return fmt.Errorf("COMMIT had no answer within %v: %w", t.c.limit, context.DeadlineExceeded)
	}
}

func (t transaction) Rollback() error {
	ctx, cancel := limited(t.ctx, t.c.limit)
	defer cancel()
	if err := t.of.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// OnTx returns a statement of the store with its arguments as a transaction of a program takes them. The arguments are quoted
// literals, as on the connections of the store, whatever the settings of the program's connection are.
func OnTx(query string, args []any) (string, []any) {
	return translated(query, args, plain), append([]any{quoted}, args...)
}
