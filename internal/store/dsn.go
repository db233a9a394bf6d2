package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Timeouts of a connection, unless the DSN sets them. The read timeout is longer than a lock
// wait, so that a lock wait ends with the server's answer and not with a broken connection.
const (
	dialTimeout  = 3 * time.Second
	readTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
	lockTimeout  = "2" // seconds

	// tableLockMargin is added to the connection's read timeout. The sum is how long the server
	// waits for a table lock. The client's read timeout ends first, and its error counts as a
	// failure of the database and not of an order. The server does not notice that the client
	// has gone: without a bound of its own it would wait for up to a year, and each retry would
	// leave another session behind.
	tableLockMargin = 5 * time.Second
	// migrateLockWait is how long a migration waits for a table lock, in seconds.
	migrateLockWait = "300"
)

// parseDSN parses a DSN and overrides the settings that correctness depends on.
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

// dsnError hides the text that the driver quotes: with a slash in the wrong place, the text is
// a part of the password.
func dsnError(err error) error {
	reason := ""
	if text := err.Error(); strings.HasPrefix(text, "invalid DSN: ") { // these messages quote nothing
		reason = ": " + strings.TrimPrefix(text, "invalid DSN: ")
	}
	return fmt.Errorf("the database's DSN is invalid%s; write it as user:password@tcp(host:3306)/database", reason)
}

// force sets what correctness depends on, and the defaults of the timeouts.
func force(cfg *mysql.Config) error {
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true // one round trip for a statement with arguments
	cfg.ClientFoundRows = false  // the count of affected rows must be the count of changed rows
	cfg.MultiStatements = false
	cfg.Logger = &mysql.NopLogger{} // everything that the driver logs, it also returns as an error

	cfg.Timeout = orDefault(cfg.Timeout, dialTimeout)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, readTimeout)
	cfg.WriteTimeout = orDefault(cfg.WriteTimeout, writeTimeout)

	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'" // Loc alone does not set the session's time zone
	cfg.Params["autocommit"] = "1"       // else a plain read would begin a transaction
	cfg.Params["sql_mode"] = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
	if _, ok := cfg.Params["innodb_lock_wait_timeout"]; !ok {
		cfg.Params["innodb_lock_wait_timeout"] = lockTimeout
	}
	if _, ok := cfg.Params["lock_wait_timeout"]; !ok {
		cfg.Params["lock_wait_timeout"] = strconv.Itoa(int((cfg.ReadTimeout + tableLockMargin) / time.Second))
	}
	// The isolation level is set per transaction; not every server has these variables.
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

// withoutReadTimeout returns the configuration for statements that may take minutes, such as
// the migration of a large table.
func withoutReadTimeout(cfg *mysql.Config) *mysql.Config {
	cfg = cfg.Clone()
	cfg.ReadTimeout = 0
	cfg.Params["lock_wait_timeout"] = migrateLockWait
	return cfg
}

// checkName returns an error for a database name that would need quotes.
func checkName(name string) error {
	plain := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return errors.New("a database name has 1 to 64 letters, digits and underscores")
	}
	return nil
}
