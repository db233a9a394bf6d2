package realtest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// write writes a file that only the server of PostgreSQL may read, into its folder of data.
func (s *ownServer) write(name string, content []byte) {
	s.t.Helper()
	data := filepath.Join(s.Dir, "files", "data")
	info, err := os.Stat(data)
	if err == nil {
		err = os.WriteFile(filepath.Join(data, name), content, 0o600)
	}
	if err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		err = os.Chown(filepath.Join(data, name), int(owner.Uid), int(owner.Gid))
	}
	must.Do(s.t, err)
}

// openStore opens a store on a database server.
func openStore(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	db := must.Get(store.Open(o))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestReal_TLSToPostgreSQL(t *testing.T) {
	placementOf(t)
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("the servers with TLS are native")
	}
	t.Parallel()
	plain := startDatabase(t, "postgresql")
	ca, other := newAuthority(t, "authority of the shop"), newAuthority(t, "another authority")
	s := startDatabase(t, "postgresql")
	crt, key := ca.issue(t, "server", "localhost")
	for name, file := range map[string]string{"server.crt": crt, "server.key": key, "root.crt": ca.file} {
		s.write(name, []byte(readFile(t, file)))
	}
	s.stop()
	s.write("pg_hba.conf", []byte("hostssl all certified 127.0.0.1/32 cert\nhostssl all guarded 127.0.0.1/32 scram-sha-256\nhostssl all all 127.0.0.1/32 trust\n"))
	s.Args = []string{"-c", "ssl=on", "-c", "ssl_ca_file=root.crt"}
	s.start()

	clientCrt, clientKey := ca.issue(t, "certified")
	files := tlsEnviron{environ.EnvDatabaseTLSCA: ca.file}
	asUser := func(user, host, parameters string, files tlsEnviron) tlsEnviron {
		return files.with(tlsEnviron{environ.EnvDSN: "postgres://" + user + "@" + host + ":" + s.Port + "/postgres" + parameters})
	}
	root := asUser("postgres", "localhost", "", files).connect(t).Store
	for _, statement := range []string{"CREATE ROLE certified LOGIN", "CREATE ROLE guarded LOGIN PASSWORD 'right'"} {
		must.Get(root.DB().ExecContext(t.Context(), statement))(t)
	}
	const failed = "TLS to the database server failed; docs/security.md, TLS, "
	for name, row := range map[string]struct {
		env  tlsEnviron
		want string // in the error; "": it works
	}{
		"the right authority": {asUser("postgres", "localhost", "", files), ""},
		"sslrootcert":         {asUser("postgres", "localhost", "?sslmode=verify-full&sslrootcert="+url.QueryEscape(ca.file), tlsEnviron{}), ""},
		"another authority": {asUser("postgres", "localhost", "", tlsEnviron{environ.EnvDatabaseTLSCA: other.file}),
			failed},
		"the authorities of the system": {asUser("postgres", "localhost", "?sslmode=verify-full", tlsEnviron{}), failed},
		"another host name": {asUser("postgres", "127.0.0.1", "", files),
			failed},
		"no TLS, and the server requires it": {asUser("postgres", "localhost", "?sslmode=disable", tlsEnviron{}),
			"the database server refuses the user; check user and password, pg_hba.conf, and TLS"},
		"TLS, and the server has none": {files.with(tlsEnviron{environ.EnvDSN: "postgres://postgres@localhost:" + plain.Port + "/postgres"}),
			failed},
		"a client certificate": {asUser("certified", "localhost", "",
			files.with(tlsEnviron{environ.EnvDatabaseTLSCert: clientCrt, environ.EnvDatabaseTLSKey: clientKey})), ""},
		"no client certificate": {asUser("certified", "localhost", "", files),
			"the database server refuses the user; check user and password, pg_hba.conf, and TLS"},
		"the right password": {asUser("guarded:right", "localhost", "", files), ""},
		"a wrong password":   {asUser("guarded:hidden", "localhost", "", files), "the database server refuses the user; check user and password"},
	} {
		t.Run(name, func(t *testing.T) {
			db := row.env.connect(t).Store
			err := db.Ping(t.Context())
			if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hidden")) {
				t.Fatalf("got %v\nwant %s", err, row.want)
			}
			encrypted := false
			if err == nil {
				err = db.DB().QueryRowContext(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted)
			}
			expect.That(t, row.want != "" || err == nil && encrypted, "the connection is encrypted: %v, %v", encrypted, err)
		})
	}
}

// A failover by hand: the primary is stopped, and starts as a standby; then it is promoted. Of two servers in the DSN, the primary is taken.
func TestReal_AStandbyOfPostgreSQLIsNoStore(t *testing.T) {
	placementOf(t)
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("the data of a container cannot be changed")
	}
	t.Parallel()
	s, other := startDatabase(t, "postgresql"), startDatabase(t, "postgresql")
	dsn, _, err := scenario.CreateDatabase(t.Context(), s.dsn(), nil, "shop")
	if err == nil {
		_, _, err = scenario.CreateDatabase(t.Context(), other.dsn(), nil, "shop")
	}
	must.Do(t, err)
	db := openStore(t, store.Options{DSN: dsn})
	must.Do(t, db.Migrate(t.Context()))
	s.stop()
	s.write("standby.signal", nil)
	s.start()
	_ = db.Ping(t.Context()) // it may meet a connection of before
	for _, err := range []error{db.Ping(t.Context()), db.Writable(t.Context())} {
		if !errors.Is(err, orderclose.ErrUnavailable) || !strings.Contains(err.Error(), "the database server is a standby, which takes no writes") ||
			!store.Passes(err) {
			t.Errorf("a standby: %v", err)
		}
	}
	both := openStore(t, store.Options{DSN: strings.Replace(dsn, s.Addr(), s.Addr()+","+other.Addr(), 1)})
	expect.Is(t, both.Ping(t.Context()), nil, "a standby and a primary")
	promote(t, s)
	expect.Is(t, db.Writable(t.Context()), nil, "after the promotion")

	// A server that takes no writes any more, as when its disk is full: the statements fail, and new connections
	// are made, which may reach another server.
	must.Get(db.DB().ExecContext(t.Context(), "SET default_transaction_read_only = on"))(t)
	_, err = db.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "o"}})
	expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "25006"), "a read-only session: %v", err)
	expect.Is(t, db.Writable(t.Context()), nil, "a new connection")
}

// promote makes a standby a primary.
func promote(t *testing.T, s *ownServer) {
	t.Helper()
	c := must.Get(pgx.Connect(t.Context(), s.dsn()))(t)
	defer c.Close(context.WithoutCancel(t.Context()))
	if _, err := c.Exec(t.Context(), "SELECT pg_promote()"); err != nil { // it waits until the server is the primary
		t.Fatal(err)
	}
}
