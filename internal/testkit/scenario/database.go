package scenario

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store"
)

// CreateDatabase creates a database of that name on the server of a DSN, for a demo or a test that must
// not touch existing databases. t encrypts the connections; nil: the DSN says whether TLS is used. It
// returns the DSN of the new database and a function that drops it. The name has letters, digits and
// underscores. It is an error if the database exists.
func CreateDatabase(ctx context.Context, dsn string, t *tls.Config, name string) (newDSN string, drop func(context.Context) error, err error) {
	plain := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if name == "" || strings.TrimFunc(name, plain) != "" {
		return "", nil, fmt.Errorf("create database %q: a name has letters, digits and underscores", name)
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
	exec := func(ctx context.Context, statement string) (err error) {
		server := cfg.Clone()
		server.DBName = "information_schema" // the database in the DSN need not exist
		s, err := store.Open(store.Options{DSN: server.FormatDSN(), TLS: t})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		_, err = s.DB().ExecContext(ctx, statement)
		return store.Classify(err)
	}
	if err := exec(ctx, "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		return "", nil, fmt.Errorf("create database %q on %s: %w", name, cfg.Addr, err)
	}
	own := cfg.Clone()
	own.DBName = name
	return own.FormatDSN(), func(ctx context.Context) error {
		if err := exec(ctx, "DROP DATABASE `"+name+"`"); err != nil {
			return fmt.Errorf("drop database %q on %s: %w", name, cfg.Addr, err)
		}
		return nil
	}, nil
}
