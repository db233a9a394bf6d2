// Package shoptest plays the statements of a real shop against closes, on real servers. It is the helper of the tests in the folders of shops/.
//
// A folder has schema.sql (the shop's tables), alter.sql (what orderclose needs in them; it may be missing) and topics.yaml (the mapping). Each creates
// a database with the shop's tables for each server, and passes it to the test as a Shop. Adopt puts orderclose beside them. A test writes each flow of
// the shop, such as a payment, as a function that runs the shop's statements in the shop's order. The flow calls a function between its read and its
// write, and the test plays another flow there: so each race is played exactly, without a sleep.
//
// Without ORDERCLOSE_DB_DSN, ORDERCLOSE_MYSQL_DSN or ORDERCLOSE_POSTGRES_DSN the tests are skipped, and with REQUIRE_REAL=1 they fail.
package shoptest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of shops on PostgreSQL

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// OnMySQL and OnPostgres are the servers of a shop, for Each.
var (
	OnMySQL    = []string{"mariadb", "mysql"}
	OnPostgres = []string{"postgres"}
)

// dsnVariables name the real servers of each kind.
var dsnVariables = map[string]string{"mariadb": "ORDERCLOSE_DB_DSN", "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"}

// Shop is a database with the tables of a shop. Its Session is the shop's, outside of transactions.
type Shop struct {
	*testing.T
	Session
	db    *sql.DB
	dsn   string
	Store *store.Store // with the mapping of the shop; nil before Adopt
}

// Each runs test for each server, in a new database with the tables of the folder in which the test runs. The sessions of the shop have the time zone
// +08:00 on MySQL, and UTC on PostgreSQL. There, as with most drivers of shops, an UPDATE counts the rows that it finds.
func Each(t *testing.T, servers []string, test func(s *Shop)) {
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			if server == "mysql" {
				ring.OnlyAll(t, "the same on MariaDB; the suite of the store has what MySQL does in its own way")
			}
			t.Parallel()
			test(open(t, database(t, server)))
		})
	}
}

// database creates a database, drops it when the test ends, and returns its DSN.
func database(t *testing.T, server string) string {
	t.Helper()
	dsn := os.Getenv(dsnVariables[server])
	switch {
	case dsn != "":
	case os.Getenv("REQUIRE_REAL") == "1":
		t.Fatalf("%s names no server, and REQUIRE_REAL=1 wants one", dsnVariables[server])
	default:
		t.Skipf("%s names no server", dsnVariables[server])
	}
	dsn, drop, err := scenario.CreateDatabase(t.Context(), dsn, nil, "shop_"+strings.ToLower(rand.Text()))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, drop(context.WithoutCancel(t.Context()))) })
	return dsn
}

// open creates the tables of the shop.
func open(t *testing.T, dsn string) *Shop {
	t.Helper()
	s := &Shop{T: t, db: connect(t, dsn), dsn: dsn}
	s.Session = Session{s, s.db}
	s.run("schema.sql")
	return s
}

// Adopt changes the tables by alter.sql, migrates, and checks that the mapping fits the tables.
func (s *Shop) Adopt() {
	s.Helper()
	if _, err := os.Stat("alter.sql"); err == nil {
		s.run("alter.sql")
	}
	cfg := must.Get(config.Load("topics.yaml"))(s.T)
	s.Store = must.Get(store.Open(store.Options{DSN: s.dsn, Orders: cfg.Orders, Pipeline: cfg.Topics.Close, Delays: cfg.Delays}))(s.T)
	s.Cleanup(func() { must.Do(s.T, s.Store.Close()) })
	must.Do(s.T, s.Store.Migrate(s.Context()))
	must.Do(s.T, s.Store.RecordDelays(s.Context()))
	must.Do(s.T, s.Store.CheckMapping(s.Context()))
}

// connect opens the database as the shop does.
func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if !postgres.IsDSN(dsn) {
		c := must.Get(mysql.ParseDSN(dsn))(t)
		driver, c.ClientFoundRows, c.Params["time_zone"] = "mysql", true, "'+08:00'"
		dsn = c.FormatDSN()
	}
	db := must.Get(sql.Open(driver, dsn))(t)
	t.Cleanup(func() { must.Do(t, db.Close()) })
	return db
}

// ChangesWhatItHasNotRead lets the shop's transactions change rows that others have changed since they read first. MariaDB 11.6 and newer refuse that
// by default, with an error that the customer sees.
func (s *Shop) ChangesWhatItHasNotRead() {
	s.Helper()
	if s.Read([]any{new(string), new(string)}, "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'") {
		c := must.Get(mysql.ParseDSN(s.dsn))(s.T)
		c.Params["innodb_snapshot_isolation"] = "OFF"
		s.db = connect(s.T, c.FormatDSN())
		s.Session = Session{s, s.db}
	}
}

// run runs the statements of a file. A statement ends with a semicolon at the end of a line.
func (s *Shop) run(file string) {
	s.Helper()
	text := must.Get(os.ReadFile(file))(s.T)
	var code strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			code.WriteString(line)
		}
	}
	for statement := range strings.SplitSeq(code.String(), ";\n") {
		if strings.TrimSpace(statement) != "" {
			s.Exec(statement)
		}
	}
}
