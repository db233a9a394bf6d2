package postgres

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/orderclose/orderclose/internal/store/settings"
	"github.com/orderclose/orderclose/internal/tlsfault"
)

// Connector returns a connector whose connections take the statements of the store. Each new connection is
// checked.
func (c *Config) Connector() driver.Connector {
	return connector{stdlib.GetConnector(*c.conn), c, &leftCommits{}}
}

type connector struct {
	driver.Connector
	config *Config
	left   *leftCommits
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.left.err(); err != nil {
		return nil, err
	}
	of, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, explain(err, c.config.conn.TLSConfig)
	}
	return newConn(of, c.config, c.left)
}

// explain adds to an error of connecting what to do.
func explain(err error, t *tls.Config) error {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	what, do := "the database server refuses the user", "check user and password, pg_hba.conf, and TLS or a certificate if it requires them"
	switch {
	case tlsfault.Is(err), strings.Contains(err.Error(), "server refused TLS connection"), // the driver exports no error
		pg == nil && tlsfault.Subject(t) != "" && tlsfault.ClosedByPeer(err):
		return tlsfault.Sentence("the database server", err)
	case pg == nil:
		return err
	case strings.HasPrefix(pg.Code, "28"):
	case pg.Code == "08P01" && strings.Contains(pg.Message, "startup parameter"):
		what, do = "the pooler (PgBouncer) refuses a parameter of the DSN", "remove it, or add it to ignore_startup_parameters of the pooler "+
			"and set it for the user: ALTER ROLE … SET …"
	default:
		return err
	}
	return fmt.Errorf("%s; %s: %w", what, do, err)
}

// oldest is the oldest version of PostgreSQL that is supported, as server_version_num.
const oldest = 130000

var (
	// ErrServer says that the server is of a kind or a version that is not supported, or has a pooler before it
	// that is not.
	ErrServer = errors.New("the database server is not supported")
	// ErrStandby says that the server takes no writes, because it replicates another server.
	ErrStandby = errors.New("the database server is a standby")
	// ErrZone says that a connection's session is not in UTC although the store sets UTC, for example because of a
	// proxy.
	ErrZone = errors.New("the session's time zone is not UTC")
)

// sessionQuery asks for what judge judges, and sets how long the server waits for a client that takes no rows. A pooler tells the
// client another process id (%d) than that of the server. Behind it the setting would be that of the pooler's connection.
var sessionQuery = "SELECT version(), current_setting('server_version_num'), pg_is_in_recovery(), current_setting('TimeZone'), " +
	"current_setting('DateStyle'), current_setting('server_encoding'), " + strings.ReplaceAll(settings.PostgresWrong(), "%", "%%") +
	", CASE WHEN pg_backend_pid() = %d THEN set_config('tcp_user_timeout', '" + Silence + "', false) END"

// check reports why a new connection cannot be used: its session has other settings than it was given, or
// the server is of another kind, too old, or a standby.
func check(ctx context.Context, c *pgconn.PgConn) error {
	results, err := c.Exec(ctx, fmt.Sprintf(sessionQuery, c.PID())).ReadAll()
	if err != nil {
		return fmt.Errorf("read the settings of a new connection: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return fmt.Errorf("read the settings of a new connection: the server answers %d results", len(results))
	}
	return judge(results[0].Rows[0])
}

// judge is check of the settings of a connection, in the order of sessionQuery.
func judge(row [][]byte) error {
	version, number, standby, zone := string(row[0]), string(row[1]), string(row[2]), string(row[3])
	dates, encoding, wrong := string(row[4]), string(row[5]), string(row[6])
	n, err := strconv.Atoi(number)
	switch {
	case strings.Contains(version, "CockroachDB"), strings.Contains(version, "-YB-"), strings.Contains(version, "Redshift"):
		return fmt.Errorf("%w: it is %s, on which orderclose was never tested; use PostgreSQL %d or newer", ErrServer, version, oldest/10000)
	case err != nil || n < oldest:
		return fmt.Errorf("%w: it is %s; use PostgreSQL %d or newer", ErrServer, version, oldest/10000)
	case standby == "t": //mutant:standby-is-store
		return fmt.Errorf("%w, which takes no writes: name the primary in the DSN, or all servers (host1,host2), of which the primary is taken", ErrStandby)
	case zone != "UTC":
		return fmt.Errorf("%w: it is %s; check for a pooler that drops timezone (ignore_startup_parameters)", ErrZone, zone)
	case encoding == "SQL_ASCII": // a byte that is not UTF-8 would fail each read of its order, and of all orders beside it
		return fmt.Errorf("%w: the encoding of the database is SQL_ASCII, so the server accepts text that is not UTF-8; "+
			"dump the database, and restore it into one with ENCODING 'UTF8'", ErrServer)
	case wrong != "" || !strings.HasPrefix(dates, "ISO"):
		return fmt.Errorf("%w: DateStyle is %s, %s; set it for the user (ALTER ROLE … SET …), and check for a pooler that drops parameters of a connection "+
			"(ignore_startup_parameters)", ErrServer, dates, wrong)
	}
	return nil
}

// Code returns the SQLSTATE of an error of a PostgreSQL server; empty: err is none.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// Where returns what a statement was about when it failed, such as a row of a table; empty: the server has not said.
func Where(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		first, _, _ := strings.Cut(pg.Where, "\n")
		return first
	}
	return ""
}

// IsConnection reports whether an error of the driver is about the connection, and none of the server.
func IsConnection(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return connect || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, pgx.ErrTxClosed)
}
