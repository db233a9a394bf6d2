package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// ErrPool says that connections of the program's own pool cannot be used as they are.
var ErrPool = postgres.ErrPool

// poolConnector connects by taking connections out of a pool of the program's own. Each is
// checked and set up once, used by the store alone, and closed in the end: its session has
// other settings than the program expects.
type poolConnector struct {
	pool     *sql.DB
	settings []string      // statements that set up the session
	limit    time.Duration // of each statement, and of connecting
}

const (
	// minPoolConns is how many connections a Store needs: one may hold rows of the outbox while they
	// are published, and closes need another.
	minPoolConns = 2
	// poolIdleTime is how long the Store keeps an idle connection out of a program's own pool.
	poolIdleTime = 10 * time.Second
)

// share returns how many connections the store may take out of the program's own pool: as many as
// are wanted, and at most half of the pool's. The error wraps ErrPool if need are more.
func share(pool *sql.DB, wanted, need int) (int, error) {
	all := pool.Stats().MaxOpenConnections
	if all > 0 {
		wanted = min(wanted, all/2) //mutant:whole-pool-taken
	}
	switch {
	case wanted >= need:
		return wanted, nil
	case all > 0 && all/2 < need:
		return 0, fmt.Errorf("%w: it has at most %d connections, of which orderclose takes at most half, and it needs %d: call SetMaxOpenConns(%d), or with more",
			ErrPool, all, need, 2*need)
	}
	return 0, fmt.Errorf("%w: orderclose may take %d connections out of it (MaxConns), and it needs %d", ErrPool, wanted, need)
}

// newPoolConnector returns a poolConnector that connects within limit, and whose statements take at most as
// long. Its sessions get the settings that Open forces on a DSN without parameters.
func newPoolConnector(pool *sql.DB, limit time.Duration) (poolConnector, error) {
	cfg := mysql.NewConfig()
	if err := mysqldsn.Force(cfg); err != nil {
		return poolConnector{}, err
	}
	set := "SET SESSION "
	for _, name := range []string{"time_zone", "autocommit", "sql_mode", "innodb_lock_wait_timeout", "lock_wait_timeout"} {
		set += name + " = " + cfg.Params[name] + ", "
	}
	return poolConnector{pool, []string{set[:len(set)-2], "SET NAMES utf8mb4 COLLATE utf8mb4_bin"}, limit}, nil
}

// Driver implements driver.Connector.
func (c poolConnector) Driver() driver.Driver { return c.pool.Driver() }

// Connect implements driver.Connector.
func (c poolConnector) Connect(ctx context.Context) (driver.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, c.limit) // the program's driver may have no timeouts
	defer cancel()
	taken, err := c.pool.Conn(limited)
	if err != nil {
		return nil, err
	}
	conn := &pooledConn{taken: taken, limit: c.limit}
	err = taken.Raw(func(of any) error {
		var ok bool
		if conn.mysqlConn, ok = of.(mysqlConn); !ok {
			return fmt.Errorf("%w: its driver %T is not pgx (stdlib), and lacks methods of go-sql-driver/mysql", ErrPool, of)
		}
		return nil
	})
	if err == nil {
		err = conn.prepareSession(ctx, c.settings)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// mysqlConn is what the store uses of a connection of go-sql-driver, and of its wrappers.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// pooledConn is a connection that was taken out of a pool.
type pooledConn struct {
	mysqlConn
	taken *sql.Conn
	limit time.Duration // of each statement
}

// Close closes the connection. The pool does not get it back.
func (c *pooledConn) Close() error {
	_ = c.taken.Raw(func(any) error { return driver.ErrBadConn })
	if err := c.taken.Close(); !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// prepareSession checks the driver's settings, which were fixed when the pool was opened, and sets
// the server's settings of the session. For a wrong setting of the driver, the error wraps ErrPool.
func (c *pooledConn) prepareSession(ctx context.Context, settings []string) error {
	if countsFoundRows(c.mysqlConn) {
		return fmt.Errorf("%w: open it without clientFoundRows, so that the count of affected rows is the count of changed rows", ErrPool)
	}
	for _, statement := range settings {
		if _, err := c.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("set up a session (%s): %w", statement, err)
		}
	}
	want := time.Date(2001, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	got, err := queryValue(ctx, c, "SELECT CAST('2001-02-03 04:05:06.007' AS DATETIME(3))")
	if err != nil {
		return err
	}
	if at, ok := got.(time.Time); !ok || !at.Equal(want) {
		if text, ok := got.([]byte); ok {
			got = string(text)
		}
		return fmt.Errorf("%w: open it with parseTime=true and loc=UTC; it reads %v as %v", ErrPool, want, got)
	}
	return nil
}

// countsFoundRows reports whether a connection of go-sql-driver has clientFoundRows set, so that its
// counts of affected rows include rows that did not change. It is false if a wrapper hides the
// configuration. The driver exports no other way.
func countsFoundRows(conn any) bool {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return false
	}
	cfg := v.Elem().FieldByName("cfg")
	if !cfg.IsValid() || cfg.Type() != reflect.TypeFor[*mysql.Config]() || cfg.IsNil() {
		return false
	}
	return cfg.Elem().FieldByName("ClientFoundRows").Bool()
}
