package mysqldsn

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/settings"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A DSN in the form of another driver gets the form of the database that it names.
func TestParse_ShowsTheFormOfTheDatabase(t *testing.T) {
	for dsn, want := range map[string]string{
		"jdbc:postgresql://db:5432/shop?user=u&password=hunter2": "invalid: write it as postgres://user:",
		"postgresql+psycopg://u:hunter2@db/shop":                 "invalid: write it as postgres://user:",
		"mysql://u:hunter2@db:3306/shop":                         "write it as user:password@tcp(host:3306)/database, or for PostgreSQL as postgres://",
	} {
		_, err := Parse(dsn, nil)
		must.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "hunter2"), "%s: %v", dsn, err)
	}
}

// A session has the forced values and the limits, whatever the server or the DSN says.
func TestForce_SessionsHaveTheForcedValues(t *testing.T) {
	cfg := must.Get(mysql.ParseDSN("u@tcp(127.0.0.1:1)/shop?SQL_SELECT_LIMIT=5&max_execution_time=6&wait_timeout=7&readTimeout=20s"))(t)
	must.Do(t, Force(cfg))
	set := ""
	for name, value := range cfg.Params {
		set += ", " + name + " = " + value
	}
	for _, server := range []string{settings.MySQL, settings.MariaDB} {
		for _, s := range append(settings.Of(server, "forced"), settings.Of(server, "limit")...) {
			must.That(t, strings.Contains(set, ", "+s.Names[0]+" = "+s.Value), "%s is not forced on %s: SET %s", s.Names[0], server, set)
		}
	}
	must.That(t, !strings.Contains(set, "= 5") && !strings.Contains(set, "= 6") && !strings.Contains(set, "= 7") && cfg.ReadTimeout == ReadTimeout,
		"SET %s, a read timeout of %v", set, cfg.ReadTimeout)
}

// The server must not wait longer for a client that has disappeared. That holds for a configuration of the driver too.
func TestParse_RefusesLongerWaitsForASilentClient(t *testing.T) {
	for parameter, ok := range map[string]bool{
		"wait_timeout=16": false, "WAIT_TIMEOUT=28800": false, "net_write_timeout=60": false, "net_read_timeout=1e3": false,
		"idle_transaction_timeout=0": false, "idle_write_transaction_timeout=-1": false, "wait_timeout=15": true, "idle_transaction_timeout=9": true,
	} {
		dsn := "u@tcp(127.0.0.1:1)/shop?" + parameter
		_, err := Parse(dsn, nil)
		_, own := Own(must.Get(mysql.ParseDSN(dsn))(t))
		name, _, _ := strings.Cut(parameter, "=")
		for _, err := range []error{err, own} {
			must.That(t, (err == nil) == ok && (ok || strings.Contains(err.Error(), name)), "%s: %v", parameter, err)
		}
	}
}
