package scenario

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// CreateDatabase creates a database of that name on the server of a DSN, for a demo or a test that must not touch existing databases. t encrypts the
// connections; nil: the DSN says whether TLS is used. It returns the DSN of the new database and a function that drops it. The name has letters, digits
// and underscores. It is an error if the database exists.
func CreateDatabase(ctx context.Context, dsn string, t *tls.Config, name string) (newDSN string, drop func(context.Context) error, err error) {
	plain := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if name == "" || strings.TrimFunc(name, plain) != "" {
		return "", nil, fmt.Errorf("create database %q: a name has letters, digits and underscores", name)
	}
	if postgres.IsDSN(dsn) {
		return createPostgres(ctx, dsn, t, name)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, errors.New("the database's DSN is invalid; write it as user:password@tcp(host:3306)/")
	}
	cfg.ParseTime = true // for a client that is not the store
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	server, own := cfg.Clone(), cfg.Clone()
	server.DBName, own.DBName = "information_schema", name // the database in the DSN need not exist
	return create(ctx, server.FormatDSN(), own.FormatDSN(), t, name, cfg.Addr, "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"DROP DATABASE `"+name+"`")
}

// create executes the statement that creates a database, and returns own, its DSN, and a function that drops it.
func create(ctx context.Context, server, own string, t *tls.Config, name, addr, createIt, dropIt string) (string, func(context.Context) error, error) {
	exec := func(ctx context.Context, statement string) (err error) {
		s, err := store.Open(store.Options{DSN: server, TLS: t})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		_, err = s.DB().ExecContext(ctx, statement)
		return store.Classify(err)
	}
	if err := exec(ctx, createIt); err != nil {
		return "", nil, fmt.Errorf("create database %q on %s: %w", name, addr, err)
	}
	return own, func(ctx context.Context) error {
		if err := exec(ctx, dropIt); err != nil {
			return fmt.Errorf("drop database %q on %s: %w", name, addr, err)
		}
		return nil
	}, nil
}

// createPostgres is CreateDatabase on PostgreSQL. The server's database postgres is there always.
func createPostgres(ctx context.Context, dsn string, t *tls.Config, name string) (string, func(context.Context) error, error) {
	server, err := withDatabase(dsn, "postgres")
	if err != nil {
		return "", nil, err
	}
	own, err := withDatabase(dsn, name)
	if err != nil {
		return "", nil, err
	}
	c, err := postgres.ParseDSN(server, t)
	if err != nil {
		return "", nil, err
	}
	addr := strings.TrimSuffix(c.Name(), "/postgres")
	return create(ctx, server, own, t, name, addr, `CREATE DATABASE "`+name+`"`, `DROP DATABASE "`+name+`" WITH (FORCE)`)
}

// withDatabase returns a DSN for another database of the same server, whose name has letters, digits and
// underscores. The error never contains the password.
func withDatabase(dsn, name string) (string, error) {
	dsn = strings.TrimSpace(dsn)
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the DSN cannot be read")
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}
