package schema

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/settings"
)

// Unsafe returns a setting with which a crash of the server loses transactions that it has confirmed, and what to do; else what untried
// returns.
func (s *Checker) Unsafe(ctx context.Context) (string, error) {
	if s.Dialect.Unsafe != nil {
		setting, err := s.Dialect.Unsafe(s.Gorm.WithContext(ctx))
		if err != nil || setting != "" {
			return setting, s.FailedTo(ctx, err, "read the settings of the database server")
		}
	}
	return s.Untried(ctx)
}

// Silence returns the settings with which this session waits longer for a client that has disappeared than each session is told to, because a
// proxy ignores that; "": there are none. So long the transaction of a lost host would keep its locks.
func (s *Checker) Silence(ctx context.Context) (longer string, err error) {
	if s.Dialect.Silence == nil {
		return "", nil
	}
	query := s.Dialect.Silence()
	err = s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.Raw(query).Row().Scan(&longer) }, db.ReadCommitted)
	return longer, s.FailedTo(ctx, err, "read how long the database server waits for a silent client")
}

// Untried returns the variables of sessions that the package settings does not list; "": there are none. It asks MySQL and MariaDB some hundred
// times.
func (s *Checker) Untried(ctx context.Context) (string, error) {
	if s.Dialect.Variables == "" {
		return "", nil
	}
	version, _ := s.Server(ctx)
	server := settings.Server(version)
	var unknown []string
	err := db.EachRow(s.Gorm.WithContext(ctx), s.Dialect.Variables, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		if settings.Find(server, name).Names == nil {
			unknown = append(unknown, name)
		}
		return err
	})
	if of := s.Dialect.SessionVariable; of != "" {
		unknown = slices.DeleteFunc(unknown, func(name string) bool {
			return s.DB().QueryRowContext(ctx, of+name).Scan(new(any)) != nil
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
	err = s.Gorm.WithContext(ctx).Raw(s.Dialect.Version).Row().Scan(&version)
	version, _, _ = strings.Cut(version, " on ") // behind it PostgreSQL names machine and compiler
	return version, s.FailedTo(ctx, err, "read the version of the database server")
}
