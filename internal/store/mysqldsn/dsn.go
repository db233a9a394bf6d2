// Package mysqldsn reads DSNs of MySQL and MariaDB by the same rules in each program: it refuses a DSN by which connections
// might silently be without encryption, reach another server, or read texts in another charset.
package mysqldsn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/settings"
)

// Timeouts of a connection, unless the DSN sets them. A DSN cannot set a longer read timeout than ReadTimeout: a COMMIT waits for it whatever
// its context says, and a call that takes 20 s ends the process. ReadTimeout is longer than a lock wait, so that a lock wait ends with the
// server's answer and not with a broken connection.
const (
	dialTimeout  = 3 * time.Second
	ReadTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
	lockTimeout  = "1" // seconds: meanwhile a close of several orders keeps payments of them waiting
	tableTimeout = "2" // seconds

	// tableLockMargin is added to the connection's read timeout. The sum is how long the server
	// waits for a table lock. The client's read timeout ends first, and its error counts as a
	// failure of the database and not of an order. The server does not notice that the client
	// has gone: without a bound of its own it would wait for up to a year, and each retry would
	// leave another session behind.
	tableLockMargin = 5 * time.Second

	// MaxIdle is how long a pool keeps a connection without use. It is shorter than the wait_timeout of a session, so
	// that the server ends no connection that the pool is about to use.
	MaxIdle = 10 * time.Second
)

// Parse parses a DSN and sets TLS; t nil: as the DSN says. An error quotes no part of the DSN, in which the password is.
func Parse(dsn string, t *tls.Config) (*mysql.Config, error) {
	if postgresScheme.MatchString(dsn) { // in the form of another driver; package postgres reads its own
		return nil, errors.New("the database's DSN is invalid: write it as " + postgresForm)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, Error(err)
	}
	return cfg, secure(cfg, t)
}

// Own is Parse of a configuration that a program has made, whose TLS stays.
func Own(cfg *mysql.Config) (*mysql.Config, error) {
	cfg = cfg.Clone()
	return cfg, secure(cfg, nil)
}

// postgresScheme matches a DSN such as jdbc:postgresql://…, which names PostgreSQL.
var postgresScheme = regexp.MustCompile(`(?i)^\s*[a-z+:]*(postgres|pgsql)[a-z0-9+]*:`)

const postgresForm = "postgres://user:password@host:5432/database?sslmode=verify-full"

// secretName matches parameters that other drivers have, and no variable of a server that a session
// needs.
var secretName = regexp.MustCompile(`(?i)^user|pass|pwd|secret`)

// otherCharset reports whether a DSN sets another charset than utf8mb4. The driver quotes arguments in utf8mb4. A server that
// reads them in GBK may take a part of an order id for the end of the quotes.
func otherCharset(cfg *mysql.Config) bool {
	_, parameters, _ := strings.Cut(cfg.FormatDSN(), "?")
	for parameter := range strings.SplitSeq(parameters, "&") {
		switch name, value, _ := strings.Cut(strings.ToLower(parameter), "="); {
		case name == "charset" && value != "utf8mb4",
			name == "collation" && !strings.HasPrefix(value, "utf8mb4_"),
			name == "names", strings.Contains(name+value, "character_set"), strings.Contains(name+value, "collation_"):
			return true
		}
	}
	return false
}

// secure sets TLS. It refuses a DSN by which connections might silently be without encryption or
// reach another server, and a DSN with a password where an error of the server would quote it.
func secure(cfg *mysql.Config, t *tls.Config) error {
	const ca = "name the CA of the server's certificate in ORDERCLOSE_DB_TLS_CA_FILE (in Go: RootCAs of the tls.Config)"
	for name := range cfg.Params { // parameters that the driver does not know become SET statements
		if secretName.MatchString(name) {
			return errors.New("the database's DSN has a user or a password as a parameter: write them before the server, as in user:password@tcp(host:3306)/database")
		}
	}
	switch {
	case cfg.TLSConfig == "skip-verify":
		return errors.New("the database's DSN has tls=skip-verify, which accepts any server: write tls=true, and " + ca)
	case cfg.AllowFallbackToPlaintext: //mutant:plain-text-fallback
		return errors.New("the database's DSN has tls=preferred or allowFallbackToPlaintext, with which a connection may be without encryption: " +
			"write tls=true, and " + ca)
	case otherCharset(cfg):
		return errors.New("the database's DSN has another charset or collation than utf8mb4: remove the parameter, connections use utf8mb4")
	case cfg.AllowCleartextPasswords && cfg.TLSConfig == "" && t == nil:
		return errors.New("the database's DSN has allowCleartextPasswords, which sends the password readable to any server that answers: " +
			"write tls=true too, and " + ca)
	case t == nil:
	case cfg.TLSConfig != "" && cfg.TLSConfig != "true":
		return errors.New("the database's DSN has a parameter tls, " +
			"and the configuration of TLS is set too (ORDERCLOSE_DB_TLS_CA_FILE and the others, in Go a tls.Config): remove the parameter")
	default:
		cfg.TLS = t.Clone()
	}
	cfg.AllowAllFiles = false // no server may ask this process for a file
	return limited(cfg.Params)
}

// limited refuses parameters that let the server wait longer for a client that has disappeared. Its transaction would keep
// the rows of checkouts and payments locked for as long.
func limited(parameters map[string]string) error {
	for name, value := range parameters {
		for _, server := range []string{settings.MySQL, settings.MariaDB} {
			s := settings.Find(server, name)
			if s.What != "limit" {
				continue
			}
			most, err := strconv.Atoi(s.Value)
			seconds, wrong := strconv.Atoi(value)
			if err != nil || wrong != nil || seconds < 1 || seconds > most {
				return fmt.Errorf("the database's DSN has %s=%.20s: remove the parameter, because the transaction of a program whose host has disappeared "+
					"has to end after %d s", name, value, most)
			}
		}
	}
	return nil
}

// Warning returns what is unsafe in the DSN, and what to do; "": nothing is. A DSN that sends a password over a network without
// encryption is accepted, because the network may be private.
func Warning(cfg *mysql.Config) string {
	host, _, _ := net.SplitHostPort(cfg.Addr)
	if ip := net.ParseIP(host); cfg.TLS != nil || cfg.TLSConfig != "" || cfg.Passwd == "" || cfg.Net != "tcp" || host == "localhost" ||
		ip != nil && ip.IsLoopback() {
		return ""
	}
	return "the database's DSN has a password and no tls=true: who can read the network between this process and " + host +
		" can read the orders, and take the password or the connection; write tls=true"
}

// Error returns the driver's error about a DSN without the text that the driver quotes. With a slash in the wrong place, that
// text is a part of the password.
func Error(err error) error {
	reason := ""
	if text := err.Error(); strings.HasPrefix(text, "invalid DSN: ") { // these messages quote nothing
		reason = ": " + strings.TrimPrefix(text, "invalid DSN: ")
	}
	return fmt.Errorf("the database's DSN is invalid%s; write it as user:password@tcp(host:3306)/database, or for PostgreSQL as %s", reason, postgresForm)
}

// Force sets what correctness depends on, and the defaults of the timeouts.
func Force(cfg *mysql.Config) error {
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true // one round trip for a statement with arguments
	cfg.ClientFoundRows = false  // the count of affected rows must be the count of changed rows
	cfg.MultiStatements = false
	// The driver asks the server for its limit, and sends the arguments of a longer statement apart. The server would end the connection.
	cfg.MaxAllowedPacket = 0
	cfg.Logger = &mysql.NopLogger{} // everything that the driver logs, it also returns as an error

	cfg.Timeout = cmp.Or(cfg.Timeout, dialTimeout)
	cfg.ReadTimeout = min(cmp.Or(cfg.ReadTimeout, ReadTimeout), ReadTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, writeTimeout)

	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	maps.DeleteFunc(cfg.Params, func(name, _ string) bool {
		return isSet(settings.MySQL, name) || isSet(settings.MariaDB, name)
	})
	name, values, _ := strings.Cut(settings.MySQLAssignments(), " = ") // one parameter, since their order counts
	cfg.Params[name] = values                                          //mutant:server-setting-inherited
	cfg.Params["innodb_lock_wait_timeout"] = cmp.Or(cfg.Params["innodb_lock_wait_timeout"], lockTimeout)
	cfg.Params["lock_wait_timeout"] = cmp.Or(cfg.Params["lock_wait_timeout"], strconv.Itoa(int((cfg.ReadTimeout+tableLockMargin)/time.Second)))
	// The isolation level is set per transaction; not every server has these variables.
	delete(cfg.Params, "transaction_isolation")
	delete(cfg.Params, "tx_isolation")

	return cfg.Apply(
		mysql.TimeTruncate(time.Millisecond),
		mysql.Charset("utf8mb4", "utf8mb4_bin"), // ids compare exactly
	)
}

// isSet reports whether each session gets the value of a variable from the list.
func isSet(server, name string) bool {
	what := settings.Find(server, name).What
	return what == "forced" || what == "limit"
}

// WithoutReadTimeout returns the configuration for statements that may take minutes, such as
// the migration of a large table.
func WithoutReadTimeout(cfg *mysql.Config) *mysql.Config {
	cfg = cfg.Clone()
	cfg.ReadTimeout = 0
	cfg.Params["lock_wait_timeout"] = tableTimeout // who comes behind a step that changes a table waits as long
	return cfg
}
