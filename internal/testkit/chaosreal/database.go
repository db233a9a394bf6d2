//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/producer"
)

// database is what differs between the kinds of database: how programs connect, and the statements of the shop, of the witness and of the faults.
type database struct {
	name    string // DATABASE
	server  string // its script, without .sh
	driver  string // of database/sql
	dialect producer.Dialect
	root    string // user with all privileges
	noName  string // a database that is there always
	// dsn returns the DSN of a database for a user. It is that of a process of the pipeline, or of database/sql.
	dsn func(user, addr, name string, process bool) string
	// forgets says that a crash may undo commits that were shown to others, but not acknowledged. InnoDB
	// shows a commit before its log is on disk; PostgreSQL does not.
	forgets bool

	user     []string                   // create the user of the pipeline
	grant    func(name string) []string // let that user use a database; executed in it
	drop     string                     // drops a database, %s
	now      string                     // its clock
	early    string                     // of a checker.Witness
	iso      func(column string) string // a time as text
	bind     func(query string) string  // writes the arguments of a query, ?, as the driver takes them
	sessions string                     // selects the ids of the sessions of the pipeline
	end      string                     // ends the session of an id, %d

	readOnly, writable          []string // make the database read-only for the pipeline; undo it
	none, some                  string   // leave the pipeline one connection at most; undo it
	readLock, lockOrders, alter []string // in a session of their own
	commit                      []byte   // the packet by which the pipeline commits

	types      *strings.Replacer // of ownTables
	mappedTime string            // of ownMapping
}

var databases = []*database{mariadb, mySQL, postgreSQL}

// databaseNamed returns the database of that name; "": the default.
func databaseNamed(name string) (*database, error) {
	n := slices.IndexFunc(databases, func(d *database) bool { return d.name == name })
	if n < 0 && name != "" {
		return nil, fmt.Errorf("DATABASE=%q: write mariadb, mysql or postgres", name)
	}
	return databases[max(n, 0)], nil
}

var mariadb = &database{
	name: "mariadb", server: "mariadb", driver: "mysql", dialect: producer.MySQL, root: "root", forgets: true,
	dsn: func(user, addr, name string, process bool) string {
		if process {
			return fmt.Sprintf("%s@tcp(%s)/%s?readTimeout=5s&writeTimeout=5s&timeout=3s", user, addr, name)
		}
		cfg := mysql.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = user, "tcp", addr, name
		cfg.ParseTime, cfg.Loc, cfg.InterpolateParams = true, time.UTC, true
		cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
		cfg.Params = map[string]string{"time_zone": "'+00:00'"}
		return cfg.FormatDSN()
	},
	// Without the privileges of an administrator, so that a read-only server rejects its writes.
	user: []string{"CREATE USER pipeline@'%' IDENTIFIED BY ''"},
	grant: func(name string) []string {
		return []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON " + name + ".* TO pipeline@'%'"}
	},
	drop: "DROP DATABASE %s",
	now:  "UTC_TIMESTAMP(3)", early: checker.EarlyQuery,
	iso: func(column string) string {
		return "CONCAT(DATE_FORMAT(" + column + ", '%Y-%m-%dT%H:%i:%s.'), LPAD(MICROSECOND(" + column + ") DIV 1000, 3, '0'), 'Z')"
	},
	bind:     func(query string) string { return query },
	sessions: "SELECT id FROM information_schema.processlist WHERE user = 'pipeline'",
	end:      "KILL %d",
	readOnly: []string{"SET GLOBAL read_only = 1"}, writable: []string{"SET GLOBAL read_only = 0"},
	none: "ALTER USER pipeline@'%' WITH MAX_USER_CONNECTIONS 1", some: "ALTER USER pipeline@'%' WITH MAX_USER_CONNECTIONS 0",
	readLock:   []string{"FLUSH TABLES WITH READ LOCK"},
	lockOrders: []string{"LOCK TABLES orders WRITE"},
	alter:      []string{"ALTER TABLE orders FORCE"},
	commit:     testkit.MySQLCommit,
	types: strings.NewReplacer("TEXT64", "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "INT64 AUTO", "BIGINT AUTO_INCREMENT",
		"INT64", "BIGINT", "MOMENT", "DATETIME(3)"),
	mappedTime: "type: datetime, zone: UTC, precision: ms",
}

var mySQL = func() *database {
	d := *mariadb
	d.name, d.server = "mysql", "mysql"
	return &d
}()

var postgreSQL = &database{
	name: "postgres", server: "postgresql", driver: "pgx", dialect: producer.Postgres, root: "postgres", noName: "postgres",
	dsn: func(user, addr, name string, _ bool) string {
		return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=3", user, addr, name)
	},
	user: []string{"CREATE ROLE pipeline LOGIN"},
	grant: func(string) []string { // the tables are created afterwards
		return []string{"ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO pipeline"}
	},
	drop: "DROP DATABASE %s WITH (FORCE)",
	now:  "clock_timestamp()", early: "SELECT expire_at FROM orders WHERE status = 2 AND expire_at > statement_timestamp()",
	iso: func(column string) string {
		return "to_char(" + column + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
	},
	bind: func(query string) string {
		for n := 1; strings.Contains(query, "?"); n++ {
			query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
		}
		return query
	},
	sessions: "SELECT pid FROM pg_stat_activity WHERE usename = 'pipeline'",
	end:      "SELECT pg_terminate_backend(%d)",
	// New sessions are read-only, and stay so: a process must open others afterwards.
	readOnly: []string{"ALTER ROLE pipeline SET default_transaction_read_only = on",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'pipeline'"},
	writable: []string{"ALTER ROLE pipeline RESET default_transaction_read_only"},
	none:     "ALTER ROLE pipeline CONNECTION LIMIT 0", some: "ALTER ROLE pipeline CONNECTION LIMIT -1",
	readLock: []string{"BEGIN",
		"LOCK TABLE late_payments, order_items, orders, outbox_events, outbox_schedules, pauses, receipts, stock, stock_ledger, sweeps IN SHARE MODE"},
	lockOrders: []string{"BEGIN", "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"},
	alter:      []string{"VACUUM FULL orders"},
	commit:     testkit.PostgresCommit,
	types: strings.NewReplacer("TEXT64", `VARCHAR(64) COLLATE "C"`, "INT64 AUTO", "BIGINT GENERATED ALWAYS AS IDENTITY",
		"INT64", "BIGINT", "MOMENT", "TIMESTAMPTZ(3)"),
	mappedTime: "type: timestamptz, precision: ms",
}
