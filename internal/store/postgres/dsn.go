package postgres

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Config is how to connect to a server.
type Config struct {
	conn *pgx.ConnConfig
	// Limit bounds each statement, and how long the client waits for its answer; 0: without a bound.
	Limit    time.Duration
	lockWait string // the longest wait for a lock in a transaction, in the server's syntax
	// HidesRows lets transactions go on without the rows that row-level security hides. Otherwise the server refuses their statements.
	HidesRows bool
}

const (
	dialTimeout = 3 * time.Second // unless the DSN sets it
	answerLimit = 15 * time.Second
	// lockTimeout is shorter than the limit of a statement, so that a lock wait ends with the server's answer. Meanwhile a close of several orders
	// keeps payments of them waiting.
	lockTimeout  = "1s"
	tableTimeout = "2s"
)

// dsnForm matches the two forms of a DSN: a URL, and words such as host=db dbname=shop.
var dsnForm = regexp.MustCompile(`^\s*(postgres(ql)?://|(host|hostaddr|port|dbname|database|user|password|service|sslmode)\s*=)`)

// IsDSN reports whether a DSN names a PostgreSQL server.
func IsDSN(dsn string) bool { return dsnForm.MatchString(dsn) }

// The parameters that a DSN may have. The driver would send any other to the server as a setting of the
// session, and some make it read files.
var (
	parameters = []string{"host", "port", "dbname", "user", "password", "passfile", "connect_timeout",
		"target_session_attrs", "application_name", "search_path", "channel_binding", "require_auth"}
	tlsParameters = []string{"sslmode", "ssl", "sslrootcert", "sslcert", "sslkey", "sslnegotiation", "sslsni"}
)

// ParseDSN parses a DSN, and overrides the settings that correctness and safety depend on. TLS, if it is not
// nil, encrypts the connections. The error never contains the password.
func ParseDSN(dsn string, t *tls.Config) (*Config, error) {
	c, err := parse(dsn, slices.Concat(parameters, tlsParameters))
	if err != nil {
		return nil, dsnError(err)
	}
	_, withTLS := parse(dsn, parameters)
	return force(c, t, withTLS != nil)
}

// Own is ParseDSN of a configuration that a program has made by ParseConfig of the driver, and whose TLS stays.
func Own(c *pgx.ConnConfig) (*Config, error) { return force(c.Copy(), nil, false) }

// force overrides the settings that correctness and safety depend on. inDSN says that the DSN has parameters about TLS.
func force(c *pgx.ConnConfig, t *tls.Config, inDSN bool) (*Config, error) {
	if c.Database == "" {
		return nil, errors.New("the database's DSN names no database: append /database to the server, or dbname=database")
	}
	if err := secure(&c.Config, t, inDSN); err != nil {
		return nil, err
	}
	// PgBouncer takes these parameters, and gives their values to each server connection that it uses for this
	// client. The wait for locks is set in each transaction.
	c.RuntimeParams["timezone"] = "UTC"
	c.RuntimeParams["client_encoding"] = "UTF8"
	c.RuntimeParams["datestyle"] = "ISO"                  // the driver reads times by it
	c.RuntimeParams["standard_conforming_strings"] = "on" // the driver quotes arguments by it
	c.RuntimeParams["application_name"] = cmp.Or(c.RuntimeParams["application_name"], "orderclose")
	delete(c.RuntimeParams, "options") // of PGOPTIONS
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, dialTimeout)
	c.ValidateConnect = check // with several servers in the DSN, the next one is tried after an error
	return &Config{conn: c, Limit: answerLimit, lockWait: lockTimeout}, nil
}

// parse is the driver's parser, for a DSN that has only the allowed parameters.
func parse(dsn string, allowed []string) (*pgx.ConnConfig, error) {
	return pgx.ParseConfigWithOptions(strings.TrimSpace(dsn), pgx.ParseConfigOptions{
		ParseConfigOptions: pgconn.ParseConfigOptions{ConnStringAllowedKeys: allowed},
	})
}

// dsnError hides the text that the driver quotes: with a character in the wrong place, the text is a part
// of the password.
func dsnError(err error) error {
	reason := "it cannot be read; special letters of a user or a password in a URL are %-escapes, such as %2F for a slash"
	for _, known := range []struct{ text, reason string }{
		{"is not in ConnStringAllowedKeys", "it has a parameter other than " + strings.Join(slices.Concat(parameters, tlsParameters), ", ") +
			"; for schema=NAME write search_path=NAME; a variable of the session that your triggers read is set for the user: " +
			"ALTER ROLE user SET name = 'value'"},
		{"unable to read CA file", "the file of sslrootcert cannot be read"},
		{"unable to add CA", "there is no certificate in the file of sslrootcert"},
		{"sslmode is invalid", "its sslmode is unknown"},
		{"unknown target_session_attrs", "its target_session_attrs is unknown"},
		{"invalid connect_timeout", "its connect_timeout is no number of seconds"},
		{"invalid port", "its port is no number; " + reason},
	} {
		if _, rest, ok := strings.Cut(err.Error(), "`: "); ok && strings.Contains(rest, known.text) {
			reason = known.reason
			break
		}
	}
	return fmt.Errorf("the database's DSN is invalid: %s; write it as postgres://user:password@host:5432/database?sslmode=verify-full", reason)
}

// secure sets TLS. It refuses a DSN by which connections over a network might silently be without
// encryption, or reach another server. inDSN says that the DSN has parameters about TLS.
func secure(c *pgconn.Config, t *tls.Config, inDSN bool) error {
	const ca = "write sslmode=verify-full, and name the CA of the server's certificate in ORDERCLOSE_DB_TLS_CA_FILE (in Go: RootCAs of the tls.Config)"
	ways := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	if t != nil {
		if inDSN && slices.ContainsFunc(ways, func(w *pgconn.FallbackConfig) bool {
			return w.TLSConfig == nil || w.TLSConfig.InsecureSkipVerify || w.TLSConfig.RootCAs != nil || len(w.TLSConfig.Certificates) > 0
		}) {
			return errors.New("the database's DSN has parameters of TLS (sslmode and others), " +
				"and the configuration of TLS is set too (ORDERCLOSE_DB_TLS_CA_FILE and the others, in Go a tls.Config): remove the parameters")
		}
		// The default sslmode has two ways to each server.
		ways = slices.CompactFunc(ways, func(a, b *pgconn.FallbackConfig) bool { return a.Host == b.Host && a.Port == b.Port })
		for _, w := range ways {
			w.TLSConfig = t.Clone()
			w.TLSConfig.ServerName = cmp.Or(t.ServerName, w.Host)
		}
		c.TLSConfig, c.Fallbacks = ways[0].TLSConfig, ways[1:]
		return nil
	}
	var plain, blind bool // a way over a network without encryption; with encryption, to any server
	for _, w := range ways {
		if !local(w.Host) {
			plain = plain || w.TLSConfig == nil
			blind = blind || w.TLSConfig != nil && w.TLSConfig.InsecureSkipVerify && w.TLSConfig.VerifyPeerCertificate == nil
		}
	}
	switch {
	case plain && blind:
		return errors.New("the database's DSN has sslmode=prefer, which is the default, or allow, " +
			"with which a connection may be without encryption: " + ca + ". Only in a network that you trust, write sslmode=disable")
	case blind:
		return errors.New("the database's DSN has sslmode=require, which accepts any server: " + ca)
	}
	return nil
}

// Warning returns what is unsafe in the DSN, and what to do; "": nothing is. A DSN that sends a password
// over a network without encryption is accepted, because the network may be private.
func (c *Config) Warning() string {
	if c.conn.TLSConfig != nil || c.conn.Password == "" || local(c.conn.Host) {
		return ""
	}
	return "the database's DSN has sslmode=disable and a password: who can read the network between this process and " + c.conn.Host +
		" can read the orders, and take the password or the connection; write sslmode=verify-full"
}

// local reports whether a host is this machine: a loopback address, or the folder of a socket.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}

// Name returns the server and the database, as host:port/database; of several servers the first.
func (c *Config) Name() string {
	return net.JoinHostPort(c.conn.Host, strconv.Itoa(int(c.conn.Port))) + "/" + c.conn.Database
}

// Unbounded returns the configuration for statements that may take minutes, such as the migration of a
// large table.
func (c *Config) Unbounded() *Config { return &Config{conn: c.conn.Copy(), lockWait: tableTimeout} }
