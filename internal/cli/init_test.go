package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// TestInit_AsksWritesAndChecks: a file is written only if no question is open and none exists, and migrate takes it.
func TestInit_AsksWritesAndChecks(t *testing.T) {
	server := os.Getenv(environ.EnvDSN)
	if server == "" {
		t.Skip("no database is named: make test starts some")
	}
	dsn := storetest.NewDatabase(t, server)
	st := must.Get(store.Open(store.Options{DSN: dsn}))(t)
	defer st.Close()
	for _, statement := range []string{
		"CREATE TABLE t_order (id BIGINT PRIMARY KEY, status INT NOT NULL, create_time DATETIME NULL, pay_time DATETIME NULL," +
			" deleted TINYINT NOT NULL DEFAULT 0, KEY (status, create_time, id))",
		"CREATE TABLE t_cart (id BIGINT PRIMARY KEY, status INT NOT NULL, create_time DATETIME NULL)",
		"INSERT INTO t_order (id, status, create_time, pay_time) VALUES (1, 1, '2026-01-01', '2026-01-01'), (2, 9, '2026-01-01', NULL)," +
			" (3, 0, UTC_TIMESTAMP() - INTERVAL 1 MINUTE, NULL), (4, 1, '2026-01-01', '2026-01-01'), (5, 0, UTC_TIMESTAMP(), NULL), (6, 0, UTC_TIMESTAMP(), NULL)",
	} {
		must.Get(st.DB().ExecContext(t.Context(), statement))(t)
	}
	file := filepath.Join(t.TempDir(), "topics.yaml")
	env := map[string]string{environ.EnvDSN: dsn}
	must.Do(t, os.Symlink("later.yaml", file+".link")) // it exists only when it is opened
	known := []string{"init", "--config", file, "--unpaid", "0", "--closed", "9", "--delay", "30m"}
	for _, c := range []struct {
		args  []string
		code  int
		wants []string
	}{
		{[]string{"init", "--config", file}, 3, []string{"--unpaid: which value of t_order.status", "0: 3 rows, 0 of them older than a day", "--delay"}},
		{[]string{"init", "--config", file, "--table", "t_cart"}, 3, []string{"t_cart.status has no value for a closed order"}},
		{[]string{"init", "--config", file, "--unpaid", "1"}, 3, []string{"those orders are paid"}},
		{[]string{"init", "--config", file, "--unpaid", "x"}, 3, []string{"has no such value"}},
		{[]string{"init", "--config", file, "--unpaid", "none"}, 3, []string{"there is nothing to close"}},
		{[]string{"init", "--config", file, "--keep", "colour=red"}, 3, []string{"write COLUMN=VALUES"}},
		{append(known, "--print", "--keep", "pay_time=set"), 0, []string{"where: {pay_time: null, deleted: 0}"}},
		{[]string{"init", "--config", file, "--delay", "soon"}, 2, []string{"--delay"}},
		{append(known, "--print"), 0, []string{"status: {column: status, from: 0, to: 9, paid: [1]}", `zone: "UTC"`, "where: {deleted: 0}", "within a day  3"}},
		{known, 0, []string{"within a day  3", "orderclose migrate"}},
		{known, 5, []string{"exists"}},
		{append(known, "--config", file+".link"), 5, []string{"file exists: write --print"}},
		{[]string{"migrate", "--config", file}, 0, []string{"order 3 could be closed"}},
	} {
		out, stderr, code := run(t, env, c.args...)
		for _, want := range c.wants {
			expect.That(t, code == c.code && strings.Contains(out+stderr, want), "%v: exit %d, want %d with %q:\n%s%s", c.args, code, c.code, want, out, stderr)
		}
	}
}
