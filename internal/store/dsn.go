package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Time-outs of a connection, unless the DSN names its own. Reading waits longer
// than a lock does, so that a lock wait ends with the server's answer and not
// with a broken connection.
const (
	dialTimeout  = 3 * time.Second
	readTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
	lockTimeout  = "2" // seconds

	// tableLockMargin is for how much longer than a connection's reader the server waits
	// for the lock of a table. The reader gives up first, which is the database's fault and
	// no order's. The server, which does not notice, waits no longer than this: its own
	// default is up to a year, and each try would leave a session behind.
	tableLockMargin = 5 * time.Second
	// migrateLockWait is how long a migration waits for the lock of a table, in seconds.
	migrateLockWait = "300"
)

// parseDSN reads a DSN and forces on it what correctness rests on.
func parseDSN(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	if err := force(cfg); err != nil {
		return nil, dsnError(err)
	}
	return cfg, nil
}

// dsnError hides whatever the driver's message quotes: with a slash in the wrong
// place that is a part of the password.
func dsnError(err error) error {
	reason := ""
	if text := err.Error(); strings.HasPrefix(text, "invalid DSN: ") { // these quote nothing
		reason = ": " + strings.TrimPrefix(text, "invalid DSN: ")
	}
	return fmt.Errorf("the database's DSN cannot be read%s; it looks like user:password@tcp(host:3306)/database", reason)
}

func force(cfg *mysql.Config) error {
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true // one round trip for a statement with arguments
	cfg.ClientFoundRows = false  // affected rows must mean changed rows
	cfg.MultiStatements = false
	cfg.Logger = &mysql.NopLogger{} // what it would log is returned as well

	cfg.Timeout = orDefault(cfg.Timeout, dialTimeout)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, readTimeout)
	cfg.WriteTimeout = orDefault(cfg.WriteTimeout, writeTimeout)

	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'" // loc alone does not set the session's zone
	cfg.Params["autocommit"] = "1"       // else a plain read would begin a transaction
	cfg.Params["sql_mode"] = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
	if _, ok := cfg.Params["innodb_lock_wait_timeout"]; !ok {
		cfg.Params["innodb_lock_wait_timeout"] = lockTimeout
	}
	if _, ok := cfg.Params["lock_wait_timeout"]; !ok {
		cfg.Params["lock_wait_timeout"] = strconv.Itoa(int((cfg.ReadTimeout + tableLockMargin) / time.Second))
	}
	// Isolation is set per transaction; not every server knows these names.
	delete(cfg.Params, "transaction_isolation")
	delete(cfg.Params, "tx_isolation")

	return cfg.Apply(
		mysql.TimeTruncate(time.Millisecond),
		mysql.Charset("utf8mb4", "utf8mb4_bin"), // ids compare exactly
	)
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// withoutReadTimeout is for statements that may take minutes, such as a
// migration of a large table.
func withoutReadTimeout(cfg *mysql.Config) *mysql.Config {
	cfg = cfg.Clone()
	cfg.ReadTimeout = 0
	cfg.Params["lock_wait_timeout"] = migrateLockWait
	return cfg
}

// checkName refuses a database name that would have to be quoted.
func checkName(name string) error {
	plain := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return errors.New("a database name has 1 to 64 letters, digits and underscores")
	}
	return nil
}
