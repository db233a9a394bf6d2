package mysqldsn

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/settings"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A session has the forced values, whatever the server or the DSN says.
func TestForce_SessionsHaveTheForcedValues(t *testing.T) {
	cfg := must.Get(mysql.ParseDSN("u@tcp(127.0.0.1:1)/shop?SQL_SELECT_LIMIT=5&max_execution_time=6&wait_timeout=7&readTimeout=20s"))(t)
	must.Do(t, Force(cfg))
	set := ""
	for name, value := range cfg.Params {
		set += ", " + name + " = " + value
	}
	for _, server := range []string{settings.MySQL, settings.MariaDB} {
		for _, s := range settings.Of(server, "forced") {
			must.That(t, strings.Contains(set, ", "+s.Names[0]+" = "+s.Value), "%s is not forced on %s: SET %s", s.Names[0], server, set)
		}
	}
	must.That(t, !strings.Contains(set, "= 5") && !strings.Contains(set, "= 6") && strings.Contains(set, "wait_timeout = 7") && cfg.ReadTimeout == ReadTimeout,
		"SET %s, a read timeout of %v", set, cfg.ReadTimeout)
}
