package store

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/store/settings"
)

// Unsafe returns a setting of MySQL or MariaDB with which a crash of the server loses transactions that it has confirmed, and what
// to do; else what untried returns. The transactions of PostgreSQL set what they need.
func (s *Store) Unsafe(ctx context.Context) (string, error) {
	if s.dialect.Name != MySQL {
		return s.untried(ctx)
	}
	var flush, sync int
	var log bool
	err := s.gorm.WithContext(ctx).Raw("SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog").Row().Scan(&flush, &log, &sync)
	const lost = "a crash of the server or of its machine loses closes whose events are published, and payments that were confirmed: set it to 1"
	switch {
	case err != nil:
		return "", s.failed(ctx, err, "read the settings of the database server")
	case flush != 1:
		return fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: %s", flush, lost), nil
	case log && sync != 1:
		return fmt.Sprintf("sync_binlog is %d: %s", sync, lost), nil
	}
	return s.untried(ctx)
}

// untried returns the variables of sessions that the package settings does not list; "": there are none. It asks MySQL and MariaDB some hundred
// times.
func (s *Store) untried(ctx context.Context) (string, error) {
	server, query := settings.MySQL, "SHOW GLOBAL VARIABLES"
	switch version, _ := s.Server(ctx); {
	case s.dialect.Name == SQLite:
		return "", nil
	case s.dialect.Name == Postgres:
		server, query = settings.Postgres, "SELECT name, '' FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend')"
	case strings.Contains(version, settings.MariaDB):
		server = settings.MariaDB
	}
	var unknown []string
	err := eachRow(s.gorm.WithContext(ctx), query, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		if settings.Find(server, name).Names == nil {
			unknown = append(unknown, name)
		}
		return err
	})
	if s.dialect.Name == MySQL { // most are of the server only
		unknown = slices.DeleteFunc(unknown, func(name string) bool {
			return s.DB().QueryRowContext(ctx, "SELECT @@session."+name).Scan(new(any)) != nil
		})
	}
	if err != nil || len(unknown) == 0 {
		return "", s.failed(ctx, err, "read the settings of the database server")
	}
	return "nobody has tried unusual values of " + strings.Join(unknown, ", ") + ", which this server has for each session", nil
}

// ErrServer says that the database server lacks what a close depends on.
var ErrServer = postgres.ErrServer

// Server returns what the database says it is, such as "10.11.14-MariaDB". The error wraps orderclose.ErrUnavailable if it does not
// answer. A server on which orderclose does not work was refused at the first connection.
func (s *Store) Server(ctx context.Context) (version string, err error) {
	query := "SELECT VERSION()"
	if s.dialect.Name == SQLite {
		query = "SELECT sqlite_version()"
	}
	err = s.gorm.WithContext(ctx).Raw(query).Row().Scan(&version)
	version, _, _ = strings.Cut(version, " on ") // behind it PostgreSQL names machine and compiler
	return version, s.failed(ctx, err, "read the version of the database server")
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
