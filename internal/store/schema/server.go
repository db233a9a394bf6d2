package schema

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/store/settings"
)

// Unsafe returns a setting of MySQL or MariaDB with which a crash of the server loses transactions that it has confirmed, and what
// to do; else what untried returns. The transactions of PostgreSQL set what they need.
func (s *Checker) Unsafe(ctx context.Context) (string, error) {
	if s.Dialect.Name != db.MySQL {
		return s.Untried(ctx)
	}
	var flush, sync int
	var log bool
	err := s.Gorm.WithContext(ctx).Raw("SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog").Row().Scan(&flush, &log, &sync)
	const lost = "a crash of the server or of its machine loses closes whose events are published, and payments that were confirmed: set it to 1"
	switch {
	case err != nil:
		return "", s.FailedTo(ctx, err, "read the settings of the database server")
	case flush != 1:
		return fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: %s", flush, lost), nil
	case log && sync != 1:
		return fmt.Sprintf("sync_binlog is %d: %s", sync, lost), nil
	}
	return s.Untried(ctx)
}

// Silence returns the settings with which this session waits longer for a client that has disappeared than each session is told to, because a
// proxy ignores that; "": there are none. So long the transaction of a lost host would keep its locks.
func (s *Checker) Silence(ctx context.Context) (longer string, err error) {
	query := "SELECT " + settings.MySQLOver()
	switch s.Dialect.Name {
	case db.SQLite:
		return "", nil
	case db.Postgres:
		query = "SELECT CASE current_setting('idle_in_transaction_session_timeout') WHEN '" + postgres.Silence + "' THEN '' ELSE " +
			"'idle_in_transaction_session_timeout is ' || current_setting('idle_in_transaction_session_timeout') END"
	}
	err = s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.Raw(query).Row().Scan(&longer) }, db.ReadCommitted)
	return longer, s.FailedTo(ctx, err, "read how long the database server waits for a silent client")
}

// Untried returns the variables of sessions that the package settings does not list; "": there are none. It asks MySQL and MariaDB some hundred
// times.
func (s *Checker) Untried(ctx context.Context) (string, error) {
	server, query := settings.MySQL, "SHOW GLOBAL VARIABLES"
	switch version, _ := s.Server(ctx); {
	case s.Dialect.Name == db.SQLite:
		return "", nil
	case s.Dialect.Name == db.Postgres:
		server, query = settings.Postgres, "SELECT name, '' FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend')"
	case strings.Contains(version, settings.MariaDB):
		server = settings.MariaDB
	}
	var unknown []string
	err := db.EachRow(s.Gorm.WithContext(ctx), query, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		if settings.Find(server, name).Names == nil {
			unknown = append(unknown, name)
		}
		return err
	})
	if s.Dialect.Name == db.MySQL { // most are of the server only
		unknown = slices.DeleteFunc(unknown, func(name string) bool {
			return s.DB().QueryRowContext(ctx, "SELECT @@session."+name).Scan(new(any)) != nil
		})
	}
	if err != nil || len(unknown) == 0 {
		return "", s.FailedTo(ctx, err, "read the settings of the database server")
	}
	return "nobody has tried unusual values of " + strings.Join(unknown, ", ") + ", which this server has for each session", nil
}

// Server returns what the database says it is, such as "10.11.14-MariaDB". The error wraps orderclose.ErrUnavailable if it does not
// answer. A server on which orderclose does not work was refused at the first connection.
func (s *Checker) Server(ctx context.Context) (version string, err error) {
	query := "SELECT VERSION()"
	if s.Dialect.Name == db.SQLite {
		query = "SELECT sqlite_version()"
	}
	err = s.Gorm.WithContext(ctx).Raw(query).Row().Scan(&version)
	version, _, _ = strings.Cut(version, " on ") // behind it PostgreSQL names machine and compiler
	return version, s.FailedTo(ctx, err, "read the version of the database server")
}
