package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// harmful maps the time of the close to a column that an INSERT must fill.
const harmful = `buckets: [1m]
orders:
  table: t
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 2}
  due: {column: late_ms, type: unix_ms}
  closed_at: {column: made, type: datetime, zone: UTC, precision: s}
  items: none
  stock: none
`

// Every command that writes to the orders' tables refuses a harmful mapping, with the line
// and a hint, before it writes anything.
func TestMySQL_AHarmfulMappingIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	server := os.Getenv(config.EnvDSN)
	if server == "" && os.Getenv("REQUIRE_REAL") != "1" {
		t.Skip(config.EnvDSN + " names no server")
	}
	dsn, drop, err := scenario.CreateDatabase(t.Context(), server, nil, "oc_"+strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = drop(context.WithoutCancel(t.Context())) }()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (id BIGINT PRIMARY KEY, state TINYINT NOT NULL, late_ms BIGINT NOT NULL, made DATETIME NOT NULL, KEY due (state, late_ms)) ENGINE = InnoDB"); err != nil {
		t.Fatal(err)
	}
	env, file := map[string]string{config.EnvDSN: dsn}, topicsYAML(t, harmful)
	want := file + ":7:23: orders.closed_at.column: column t.made has a value from when the row is inserted: a close would overwrite it"
	refused := func(args ...string) {
		t.Helper()
		out, stderr, code := run(t, env, append(args, "--config", file)...)
		if code != 3 || !strings.Contains(out+stderr, want) {
			t.Errorf("%v: exit %d\n%s%s\nwant %s", args, code, out, stderr, want)
		}
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	refused("migrate")
	refused("doctor")
	if made := count("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); made != 1 {
		t.Errorf("there are %d tables", made)
	}
	good := topicsYAML(t, strings.Replace(harmful, "  closed_at: {column: made, type: datetime, zone: UTC, precision: s}\n", "", 1))
	if _, stderr, code := run(t, env, "migrate", "--config", good); code != 0 || !strings.Contains(stderr, "note: no order has the status 0") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1, 0, 1, UTC_TIMESTAMP())"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"doctor"}, {"compensate", "--once", "--dry-run"}} {
		for accept, want := range map[string]int{"": 3, "accept: [nothing_due_later]\n": 0} {
			text, err := os.ReadFile(good)
			if err != nil {
				t.Fatal(err)
			}
			out, stderr, code := run(t, env, append(args, "--config", topicsYAML(t, accept+string(text)))...)
			if code != want || !strings.Contains(out, "1 overdue, 0 not due yet, 0 excluded") && code == 0 || strings.Contains(out, "1 unpaid orders are overdue, and none is due in the future") != (code == 3) {
				t.Errorf("%v with %q: exit %d\n%s%s", args, accept, code, out, stderr)
			}
		}
	}
	refused("compensate", "--once")
	refused("postpone", "--due-before", "now", "--by", "20m", "--plan", filepath.Join(t.TempDir(), "plan.jsonl"))
	if open := count("SELECT COUNT(*) FROM t WHERE state = 0"); open != 1 {
		t.Errorf("the order was closed")
	}
}
