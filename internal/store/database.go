package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// ErrDatabaseExists says that a database cannot be created because it exists.
var ErrDatabaseExists = errors.New("the database exists already")

// errDBExists is MySQL's error number for it.
const errDBExists = 1007

// CreateDatabase creates a database of that name on the server of o, whose DSN is required, for a
// demo or a test that must not touch existing databases. It returns the DSN of the new database and
// a function that drops it. The error wraps ErrDatabaseExists if the database exists. The name may
// have letters, digits and underscores.
func CreateDatabase(ctx context.Context, o Options, name string) (newDSN string, drop func(context.Context) error, err error) {
	if err := checkName(name); err != nil {
		return "", nil, fmt.Errorf("create database %q: %w", name, err)
	}
	cfg, err := parseDSN(o.DSN, o.TLS)
	if err != nil {
		return "", nil, err
	}
	cfg.DBName = "" // the database in dsn need not exist
	err = execOn(ctx, cfg, "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	if number(err) == errDBExists {
		err = fmt.Errorf("%w: %w", ErrDatabaseExists, err)
	}
	if err != nil {
		return "", nil, fmt.Errorf("create database %q on %s: %w", name, cfg.Addr, err)
	}
	drop = func(ctx context.Context) error {
		return wrap(execOn(ctx, cfg, "DROP DATABASE `"+name+"`"), "drop database %q on %s", name, cfg.Addr)
	}
	own := cfg.Clone()
	own.DBName = name
	return own.FormatDSN(), drop, nil
}

// execOn runs one statement on a new connection, and closes it.
func execOn(ctx context.Context, cfg *mysql.Config, statement string) (err error) {
	db, err := openPool(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err = db.ExecContext(ctx, statement); err != nil && MySQLFault(err) == FaultUnavailable {
		err = unavailable(ctx, err)
	}
	return err
}
