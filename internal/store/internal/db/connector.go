package db

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/store/settings"
	"github.com/orderclose/orderclose/internal/tlsfault"
)

// OpenPool returns a pool, made by open, that checks the settings of each new connection. It does not connect.
func OpenPool(cfg *mysql.Config, open func(driver.Connector) *sql.DB) (*sql.DB, error) {
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, mysqldsn.Error(err)
	}
	pool := open(CheckedConnector{tlsConnector{c, cfg.TLS}, checkSession})
	pool.SetConnMaxIdleTime(mysqldsn.MaxIdle)
	return pool, nil
}

// errTransport is MySQL's error number for a connection without TLS where the server requires it
// (require_secure_transport). errRefused is that for a wrong password, for a connection without TLS as
// a user who requires it (REQUIRE SSL), and for both in MariaDB.
const (
	errTransport = 3159
	errRefused   = 1045
)

// tlsConnector adds to the errors of connecting what to do about TLS.
type tlsConnector struct {
	driver.Connector
	tls *tls.Config // nil: none
}

// Connect implements driver.Connector.
func (c tlsConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err == nil {
		return conn, nil
	}
	my, _ := errors.AsType[*mysql.MySQLError](err)
	switch {
	case my != nil && my.Number == errRefused:
		err = fmt.Errorf("the database server refuses the user; check user and password, and TLS or a certificate if the user requires them: %w", err)
	case tlsfault.Is(err), errors.Is(err, mysql.ErrNoTLS), my != nil && my.Number == errTransport,
		tlsfault.Subject(c.tls) != "" && closedByServer(err): // MariaDB gives no reason
		err = tlsfault.Sentence("the database server", err)
	}
	return nil, err
}

// errNoWrite is the text of the driver's error for a connection that it could not write to. The
// driver does not export the error.
const errNoWrite = "bad connection"

// closedByServer reports whether the server closed a connection that was being made.
func closedByServer(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) || err.Error() == errNoWrite || tlsfault.ClosedByPeer(err)
}

// CheckedConnector checks the session's settings on each new connection: in a session that is
// not in UTC, an order may look due hours early. Every error until the connection is ready
// wraps orderclose.ErrUnavailable, since no order caused it: the driver's errors here, such as
// a plain "bad connection", cannot all be recognized.
type CheckedConnector struct {
	driver.Connector
	Check func(context.Context, driver.Conn) error // checkSession; nil: the Connector has checked the connection
}

// connectTimeout limits how long a new connection takes: dial, TLS, handshake, and the settings of the
// session. Migrate uses connections without a read timeout, so it has no other limit here.
const connectTimeout = 30 * time.Second

// Connect implements driver.Connector.
func (c CheckedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, Unavailable(ctx, err)
	}
	if c.Check == nil {
		return conn, nil
	}
	if err := c.Check(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, Unavailable(ctx, err)
	}
	if of, is := conn.(mysqlConn); is {
		return limitedConn{of}, nil
	}
	return conn, nil
}

// ErrZone says that a connection's session is not in UTC although the DSN sets UTC, for
// example because of a proxy.
var ErrZone = postgres.ErrZone

// sessionQuery asks for what checkSession judges: by how many seconds the session's clock is ahead of UTC, the version, and which settings
// of the session have other values than they were given.
var sessionQuery = "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CURRENT_TIMESTAMP()), VERSION(), " + settings.MySQLWrong()

// checkSession checks the settings of a session of MySQL or MariaDB, and the version of its server.
func checkSession(ctx context.Context, conn driver.Conn) error {
	row, err := queryRow(ctx, conn, sessionQuery, 3)
	if err != nil {
		return fmt.Errorf("read the settings of a new connection: %w", err)
	}
	if off, ok := row[0].(int64); !ok || off != 0 {
		return fmt.Errorf("%w: it differs by %v s; check for a proxy that drops SET time_zone", ErrZone, row[0])
	}
	err = checkVersion(fmt.Sprintf("%s", row[1]))
	if wrong := fmt.Sprintf("%s", row[2]); err == nil && wrong != "" {
		err = fmt.Errorf("%w: a session has other values than it was given for %s; check for a proxy that drops SET", ErrServer, wrong)
	}
	return err
}

// queryRow returns the first row of a query with some columns, as the driver reads it.
func queryRow(ctx context.Context, conn driver.Conn, query string, columns int) ([]driver.Value, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, fmt.Errorf("%T cannot query", conn)
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	row := make([]driver.Value, columns)
	return row, rows.Next(row)
}

// refused are servers with MySQL's protocol that do not work, by a part of their VERSION() in lower case. docs/servers.md has the sources.
var refused = map[string]string{
	"-tidb-": "it accepts FOR UPDATE SKIP LOCKED and locks nothing, so two processes take the same rows",
	"vitess": "it commits a transaction over several shards one by one, so that stock may come back without its order's close",
}

// numbers finds the version in VERSION(). MariaDB may write 5.5.5 before it, for old replicas.
var numbers = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)`)

// checkVersion reads VERSION() of a server with MySQL's protocol. The error wraps ErrServer if orderclose does not work on it. Pure.
func checkVersion(version string) error {
	lower := strings.ToLower(version)
	for mark, why := range refused {
		if strings.Contains(lower, mark) {
			return fmt.Errorf("%w: %s: %s; docs/servers.md lists the servers that work, and closer.http.url works with any", ErrServer, version, why)
		}
	}
	name, major, minor := "MySQL", 8, 0
	if strings.Contains(lower, "mariadb") {
		name, major, minor = "MariaDB", 10, 6
	}
	found := numbers.FindStringSubmatch(version)
	if found == nil || strings.Contains(lower, "oceanbase") { // the number that OceanBase names is not its own
		return nil
	}
	first, _ := strconv.Atoi(found[1])
	second, _ := strconv.Atoi(found[2])
	if first < major || first == major && second < minor {
		return fmt.Errorf("%w: %s lacks SKIP LOCKED: use %s %d.%d or newer; docs/servers.md lists the servers that work", ErrServer, version, name, major, minor)
	}
	return nil
}

// ErrServer says that the database server lacks what a close depends on.
var ErrServer = postgres.ErrServer
