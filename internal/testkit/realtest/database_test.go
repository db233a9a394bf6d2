package realtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
)

// database is a kind of database, and the variable that names a server of it.
type database struct{ kind, variable string }

// databases are the kinds of database for the tests, and the variables that name a
// server of each kind.
var databases = []database{
	{"mariadb", config.EnvDSN}, {"mysql", "ORDERCLOSE_MYSQL_DSN"}, {"postgres", "ORDERCLOSE_POSTGRES_DSN"},
}

// onMySQL are the kinds of database that take the SQL of MySQL.
var onMySQL = databases[:2]

// eachDatabase runs test once for each kind of database, with the servers that the
// environment names, as a parallel subtest with the name of the kind.
func eachDatabase(t *testing.T, test func(t *testing.T, s config.Servers)) {
	t.Parallel()
	each(t, databases, test)
}

// eachMySQL is eachDatabase without PostgreSQL, for a test whose promise another test, or the suite of
// internal/testkit/storetest, proves there.
func eachMySQL(t *testing.T, test func(t *testing.T, s config.Servers)) {
	t.Parallel()
	each(t, onMySQL, test)
}

func each(t *testing.T, kinds []database, test func(t *testing.T, s config.Servers)) {
	oneDatabaseAfterAnother(t, kinds, func(t *testing.T, s config.Servers) {
		t.Parallel()
		test(t, s)
	})
}

// oneDatabaseAfterAnother is for a test that keeps the disk of the servers busy: it runs while no
// parallel test runs. Locks of other tests would time out.
func oneDatabaseAfterAnother(t *testing.T, kinds []database, test func(t *testing.T, s config.Servers)) {
	for _, d := range kinds {
		t.Run(d.kind, func(t *testing.T) {
			s := realServers(t)
			if s.DSN = os.Getenv(d.variable); s.DSN == "" {
				missing(t, fmt.Errorf("%s names no server", d.variable))
			}
			test(t, s)
		})
	}
}

// missing skips a test that cannot run, or fails it with REQUIRE_REAL.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}
