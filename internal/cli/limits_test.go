package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// The log of the server has all statements of a command: each one that reads has a limit there, so it ends although the command has ended.
func TestMySQL_EachStatementOfACommandThatReadsHasALimit(t *testing.T) {
	server := os.Getenv(environ.EnvDSN)
	if server == "" && os.Getenv("REQUIRE_REAL") != "1" {
		t.Skip(environ.EnvDSN + " names no server")
	}
	name := "oc_" + strings.ToLower(rand.Text())
	dsn, drop, err := scenario.CreateDatabase(t.Context(), server, nil, name)
	must.Do(t, err)
	defer func() { _ = drop(context.WithoutCancel(t.Context())) }()
	db := must.Get(sql.Open("mysql", dsn))(t)
	defer func() { _ = db.Close() }()
	do := func(statement string) { must.Get(db.ExecContext(context.WithoutCancel(t.Context()), statement))(t) }
	do("CREATE TABLE t (id BIGINT PRIMARY KEY, state TINYINT NOT NULL, late_ms BIGINT NOT NULL, free INT NOT NULL, KEY due (state, late_ms)) ENGINE = InnoDB")
	do("INSERT INTO t VALUES (1, 0, 1000000000000, 1), (2, 0, 4000000000000, 1)")
	do("SET GLOBAL log_output = 'TABLE'")
	do("SET GLOBAL general_log = 1")
	defer do("SET GLOBAL general_log = 0")

	const closedAt = "  closed_at: {column: made, type: datetime, zone: UTC, precision: s}\n"
	env := map[string]string{environ.EnvDSN: dsn}
	file := topicsYAML(t, strings.NewReplacer(closedAt, "", "stock: none", "stock: none\n  where: {free: 1}").Replace(harmful)+
		"accept: [far_due, nothing_due_later, due_before_created]\n")
	for _, command := range []string{"migrate", "doctor", "compensate --dry-run", "compensate", "status", "order 1", "audit --from 24h",
		"payments late", "events again --from 1h", "pause --for 1m --reason test", "resume", "doctor --try-close"} {
		_, stderr, code := run(t, env, append(strings.Fields(command), "--config", file)...)
		expect.That(t, code == 0 || command == "audit --from 24h", "%s: exit %d: %s", command, code, stderr) // Kafka was not asked
	}
	const logged = "SELECT argument FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE '%SELECT %' AND thread_id IN " +
		"(SELECT thread_id FROM mysql.general_log WHERE command_type = 'Connect' AND argument LIKE ?)"
	rows := must.Get(db.QueryContext(t.Context(), logged, "% "+name+" %"))(t)
	defer func() { _ = rows.Close() }()
	limited := 0
	for rows.Next() {
		var statement string
		must.Do(t, rows.Scan(&statement))
		connects := strings.HasPrefix(statement, "SELECT TIMESTAMPDIFF") || strings.Contains(statement, "@@max_allowed_packet")
		expect.That(t, !strings.HasPrefix(statement, "SELECT ") || connects, "%.300s", statement)
		if strings.HasPrefix(statement, "/*M!100600 SET STATEMENT max_statement_time = ") {
			limited++
		}
	}
	expect.That(t, rows.Err() == nil && limited > 100, "%d statements have a limit, %v", limited, rows.Err())
}
