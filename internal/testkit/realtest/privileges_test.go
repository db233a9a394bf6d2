package realtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// privilege is a row of package rights.
type privilege struct {
	part, table, name string // table * means all tables
	on                string // the databases that need it, such as "only MySQL and PostgreSQL"; "": all
}

var neededBy = regexp.MustCompile("^(only MySQL and PostgreSQL|only MySQL|only PostgreSQL|not PostgreSQL)")

// neededOn reports whether a kind of database needs the privilege.
func (p privilege) neededOn(kind string) bool {
	switch p.on {
	case "only MySQL and PostgreSQL":
		return kind != "mariadb"
	case "only MySQL":
		return kind == "mysql"
	case "only PostgreSQL":
		return kind == "postgres"
	case "not PostgreSQL":
		return kind != "postgres"
	}
	return true
}

// privilegeTable returns the rows of the core and of rooms, by part.
func privilegeTable(t *testing.T) (parts []string, rows map[string][]privilege) {
	t.Helper()
	rows = map[string][]privilege{}
	for _, r := range must.Get(rights.All("../../.."))(t).Database {
		if rows[r[0]] == nil {
			parts = append(parts, r[0])
		}
		rows[r[0]] = append(rows[r[0]], privilege{r[0], r[1], r[2], neededBy.FindString(rights.Why(r, 3))})
	}
	return parts, rows
}

func (p privilege) String() string { return p.name + " on " + p.table }

// refusal matches the error that names the missing row. A table on which the user has no privilege is invisible: then the check of the mapping names it,
// or the check of the schema. MySQL names a missing UPDATE or DELETE by the lock that it allows.
func (p privilege) refusal() *regexp.Regexp {
	name, table := p.name, regexp.QuoteMeta(p.table)
	if p.table == "*" {
		table = ".*"
	}
	if name == "UPDATE" || name == "DELETE" {
		name = "(" + name + "|SELECT with locking clause)"
	}
	return regexp.MustCompile(fmt.Sprintf("permission denied for (table|schema) (%[2]s|public) |%[1]s command denied to user [^;]*(%s)[^;]*|table (%[2]s) does "+
		"not exist, or this database user may not see it|grant SELECT on the table (%[2]s)|grant %[1]s", name, table))
}

// privilegeCase is a part whose database user has all rows of its table, or all but one.
type privilegeCase struct {
	part     string
	rows     []privilege
	without  *privilege  // nil: has all rows
	root     *sql.DB     // the case's database, as a user who may do everything
	dsn      string      // the same as the user of the case
	as       rights.Play // how the role of a room is played
	user     string      // that user
	postgres bool
}

func (c *privilegeCase) String() string {
	if c.without == nil {
		return c.part + " with all"
	}
	return c.part + " without " + c.without.String()
}

// parallelPrivileges is how many cases run in parallel. They mostly wait.
const parallelPrivileges = 16

// Each part does its work with exactly the privileges that docs/security.md lists, and without any one of them fails with an error that names it.
func TestReal_EachPartNeedsItsPrivileges(t *testing.T) {
	play := map[string]func(context.Context, *testing.T, *privilegeCase) error{
		"callback": callbackNeeds, "checkout": checkoutNeeds, "closer": closerNeeds, "compensator": compensatorNeeds, "outbox": outboxNeeds,
		"viewer": viewerNeeds, "operator": operatorNeeds, "rule": ruleNeeds, "migrate": migrateNeeds,
	}
	parts, rows := privilegeTable(t)
	for part, p := range must.Get(rights.All("../../.."))(t).Play {
		play[part] = playAs(p)
	}
	if placementOf(t); !ring.All() { // few cases do not keep a disk busy
		t.Parallel()
	}
	oneDatabaseAfterAnother(t, func(t *testing.T, s config.Servers, d database) {
		var cases []*privilegeCase
		needed := func(all []privilege) []privilege {
			return slices.DeleteFunc(slices.Clone(all), func(p privilege) bool { return !p.neededOn(d.kind) && p.on != "only MySQL and PostgreSQL" })
		}
		for _, part := range parts {
			own := needed(rows[part])
			must.That(t, play[part] != nil, "docs/security.md has a part %s that neither its room nor anything here plays", part)
			var shared []privilege
			if part == "compensator" || part == "rule" { // closes orders too
				shared = needed(rows["closer"])
			}
			cases = append(cases, &privilegeCase{part: part, rows: slices.Concat(shared, own)})
			for i, row := range own {
				if !row.neededOn(d.kind) || !ring.All() {
					continue
				}
				cases = append(cases, &privilegeCase{part: part, without: &row, rows: slices.Concat(shared, own[:i], own[i+1:])})
			}
		}
		var all []rowCase
		for _, c := range cases {
			row := rowCase{name: c.String(), play: func(ctx context.Context) error { return c.in(ctx, t, s.DSN, play[c.part]) }}
			if c.without != nil {
				row.refusal = c.without.refusal()
			}
			all = append(all, row)
		}
		playRows(t, parallelPrivileges, all)
	})
}

// in creates a database and a user with the rows, and plays the case there.
func (c *privilegeCase) in(ctx context.Context, t *testing.T, server string, play func(context.Context, *testing.T, *privilegeCase) error) (err error) {
	name := "oc_" + strings.ToLower(rand.Text()[:16])
	dsn, drop, err := scenario.CreateDatabase(ctx, server, nil, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	root, err := store.Open(store.Options{DSN: dsn})
	if err != nil {
		return err
	}
	defer root.Close()
	c.root = root.DB()
	for _, r := range rooms.All() {
		if r.Tables != nil {
			root.UseTables(room.TableSteps{Room: r.Name, Files: r.Tables})
		}
	}
	if c.part != "migrate" {
		if err := root.Migrate(ctx); err != nil {
			return err
		}
	}
	c.postgres = root.Dialect() == store.Postgres
	user, create := name+"@'%'", "CREATE USER "+name+"@'%' IDENTIFIED BY '"+password(name)+"'"
	if c.postgres {
		user, create = name, "CREATE ROLE "+name+" LOGIN PASSWORD '"+password(name)+"'"
	}
	c.user = user
	statements := append([]string{create}, orders...)
	for _, row := range c.rows {
		statements = append(statements, c.grant(row, name, user))
	}
	if c.part == "checkout" { // without any privilege in a database, a user cannot use it
		statements = append(statements, c.grant(privilege{name: "SELECT", table: "orders"}, name, user))
	}
	if c.part == "migrate" {
		statements = slices.DeleteFunc(statements, func(s string) bool { return strings.HasPrefix(s, "INSERT") })
	}
	defer func() {
		ctx, dropUser := context.WithoutCancel(ctx), "DROP USER "+user
		if c.postgres {
			dropUser = "DROP OWNED BY " + user + "; " + dropUser
		}
		_, dropErr := c.root.ExecContext(ctx, dropUser)
		err = errors.Join(err, dropErr)
	}()
	for _, statement := range statements {
		if err := c.exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if c.postgres {
		u, err := url.Parse(dsn)
		if err != nil {
			return err
		}
		u.User = url.UserPassword(name, password(name))
		c.dsn = u.String()
		return play(ctx, t, c)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	cfg.User, cfg.Passwd = name, password(name)
	c.dsn = cfg.FormatDSN()
	return play(ctx, t, c)
}

// grant returns the statement that grants a row in a database to a user.
func (c *privilegeCase) grant(p privilege, database, user string) string {
	on := database + "." + p.table
	switch {
	case c.postgres && p.name == "CREATE":
		on = "SCHEMA public"
	case c.postgres:
		on = p.table
	}
	return "GRANT " + p.name + " ON " + on + " TO " + user
}

// exec executes a statement that is written for MySQL as a user who may do everything.
func (c *privilegeCase) exec(ctx context.Context, statement string) error {
	return c.execIn(ctx, c.root, statement)
}

func (c *privilegeCase) execIn(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statement string) error {
	if c.postgres {
		statement = intervals.ReplaceAllString(strings.ReplaceAll(statement, "UTC_TIMESTAMP(3)", "now()"), "INTERVAL '$1'")
	}
	_, err := db.ExecContext(ctx, statement)
	return err
}

var intervals = regexp.MustCompile(`INTERVAL (\d+ [A-Z]+)`)

// orders are the statements that write two orders, both due. The stock does not have the SKU of order "bad", so that it cannot be closed.
var orders = []string{
	"INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 3, 2)",
	"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('good', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) " +
		"- INTERVAL 1 MINUTE, 1)",
	"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('bad', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) " +
		"- INTERVAL 1 MINUTE, 1)",
	"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('good', 1, 'ink', 2), ('bad', 1, 'unknown', 1)",
}

// has returns an error while the query counts no row.
func (c *privilegeCase) has(ctx context.Context, query string) error {
	n := 0
	if err := c.root.QueryRowContext(ctx, query).Scan(&n); err != nil || n > 0 {
		return err
	}
	return fmt.Errorf("no rows by %s", query)
}

// run runs a role on an embedded Kafka until done succeeds or the log names the missing row. before is called
// when the topics exist. It returns the error of done with the log.
func (c *privilegeCase) run(ctx context.Context, role pipeline.Role, before func(*kafka.Cluster, *config.Config) error,
	done func(k *kafka.Cluster, cfg *config.Config, log string) error) error {
	logs := &testkit.LogBuffer{}
	logger := slog.New(slog.NewTextHandler(logs, nil))
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		return err
	}
	defer servers.Close()
	connections, err := servers.Connect("case")
	if err != nil {
		return err
	}
	defer connections.Close()
	cluster := connections.Kafka
	db, err := store.Open(store.Options{DSN: c.dsn})
	if err != nil {
		return err
	}
	defer db.Close()
	section, err := sectionOf(c.part, c.as, "")
	if err != nil {
		return err
	}
	topics := "partitions: 2\nbuckets: [1s, 2s]\ncompensator: {period: 1s}\ndelays: {rules: [{match: {}, remind: [1m]}]}\n" + section
	cfg, err := config.Parse("topics.yaml", []byte(topics), room.Sections(rooms.All())...)
	if err != nil {
		return err
	}
	cfg.Closer.Payment.Recheck = []time.Duration{time.Second}
	app, err := pipeline.New(pipeline.Options{
		Config: cfg, Connections: clients.Clients{Kafka: cluster, Store: db}, Logger: logger, Payment: paidLate, Rooms: rooms.All(),
		Services: done200{}, Environment: pipeline.Environment{Others: c.as.Environment},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(app.CreateTopics(ctx), before(cluster, cfg)); err != nil {
		return err
	}
	refused := func() bool { return c.without != nil && c.without.refusal().MatchString(logs.Tail(1<<20)) }
	err = runUntil(ctx, app, role, logs, refused, func() error { return done(cluster, cfg, logs.Tail(1<<20)) })
	if log := logs.Tail(1 << 20); err == nil && (strings.Contains(log, "command denied") || strings.Contains(log, "permission denied")) {
		return fmt.Errorf("it works, but the log has refusals:\n%s", log)
	}
	return err
}

// sectionOf returns the section of topics.yaml of a room, which has the name of the part; "": it has none.
func sectionOf(part string, as rights.Play, prefix string) (string, error) {
	section := as.Topics
	for _, r := range rooms.All() {
		if r.Name == part && r.Settings != nil {
			section = cmp.Or(section, r.Settings.Sample())
		}
	}
	return rights.Text(section+"\n", prefix)
}

// playAs plays a role of a room as the access.yaml of the room says.
func playAs(p rights.Play) func(context.Context, *testing.T, *privilegeCase) error {
	return func(ctx context.Context, _ *testing.T, c *privilegeCase) error {
		for _, statement := range p.Before {
			if err := c.exec(ctx, statement); err != nil {
				return err
			}
		}
		other, err := c.root.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = other.Rollback() }()
		if p.Lock != "" {
			if err := c.execIn(ctx, other, p.Lock); err != nil {
				return err
			}
		}
		c.as = p
		return c.run(ctx, pipeline.Role(c.part), func(k *kafka.Cluster, cfg *config.Config) error { return putRecords(ctx, k, p, cfg) },
			func(k *kafka.Cluster, cfg *config.Config, _ string) error {
				err := usedRecords(ctx, k, p, cfg, c.part)
				if p.Until != "" {
					err = errors.Join(err, c.has(ctx, p.Until))
				}
				return err
			})
	}
}

// callbackNeeds records a payment in time, and one of an order that is closed, whose amount becomes known. An earlier row has no id.
func callbackNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	for _, statement := range []string{
		"UPDATE orders SET status = 2, payment_id = 'p1' WHERE id = 'bad'",
		"INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) SELECT id, 'closed', expire_at, expire_at, 'sweep', 0, 0 FROM " +
			"orders WHERE id = 'bad'",
		"INSERT INTO late_payments (order_id, source, found_at) VALUES ('bad', 'recheck', UTC_TIMESTAMP(3))",
	} {
		if err := c.exec(ctx, statement); err != nil {
			return err
		}
	}
	db, err := store.Open(store.Options{DSN: c.dsn})
	if err != nil {
		return err
	}
	defer db.Close()
	for _, p := range []store.LatePayment{{OrderID: "good", PaymentID: "p1"}, {OrderID: "bad", PaymentID: "p1"},
		{OrderID: "bad", PaymentID: "p1", Amount: 1250, Currency: "EUR"}} {
		tx, err := db.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := db.RecordPayment(ctx, orderclose.SQL(tx), p); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return c.has(ctx, "SELECT CASE WHEN COUNT(*) = 2 THEN 1 ELSE 0 END FROM late_payments")
}

// checkoutNeeds schedules an order in a transaction.
func checkoutNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	driver, dialect := "mysql", producer.MySQL
	if c.postgres {
		driver, dialect = "pgx", producer.Postgres
	}
	db, err := sql.Open(driver, c.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	box, err := producer.NewOutbox(producer.OutboxOptions{Dialect: dialect})
	if err != nil {
		return err
	}
	now := time.Now()
	return box.Add(ctx, orderclose.SQL(db), orderclose.Order{ID: "good", CreatedAt: now, Due: now.Add(time.Minute)})
}

// closerNeeds closes an order, and retries one that cannot be closed. Then it records the payment of a closed order.
func closerNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	err := c.run(ctx, pipeline.Closer, func(k *kafka.Cluster, cfg *config.Config) error {
		var records []wire.Message
		for _, id := range []string{"good", "bad"} {
			m, err := record(id, time.Now().Add(-time.Minute))
			if err != nil {
				return err
			}
			records = append(records, m)
		}
		_, err := k.Append(ctx, cfg.Topics.Close, 0, records)
		return err
	}, func(_ *kafka.Cluster, _ *config.Config, log string) error {
		err := c.has(ctx, "SELECT COUNT(*) FROM receipts WHERE order_id = 'good' AND path = 'pipeline'")
		if !strings.Contains(log, "order=bad") {
			err = errors.Join(err, errors.New("order bad has not failed"))
		}
		return errors.Join(err, c.has(ctx, "SELECT COUNT(*) FROM stock WHERE available = 5 AND reserved = 0"))
	})
	if err != nil {
		return err
	}
	db, err := store.Open(store.Options{DSN: c.dsn})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := c.exec(ctx, "INSERT INTO orders (id, category, status, created_at, expire_at, version)"+
		" VALUES ('asked', '', 0, '2026-02-01', '2026-02-01', 1)"); err != nil {
		return err
	}
	if _, err := db.PayOrders(ctx, []orderclose.CloseRequest{{OrderID: "good"}, {OrderID: "asked"}}); err != nil {
		return err
	}
	return errors.Join(c.has(ctx, "SELECT COUNT(*) FROM late_payments WHERE order_id = 'good' AND source = 'recheck'"),
		c.has(ctx, "SELECT COUNT(*) FROM paid_receipts WHERE order_id = 'asked'"), db.Probe(ctx))
}

// paidLate is a provider that knows of one payment, that of order late.
var paidLate = payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		if answers[i] = payment.Unpaid; id == "late" {
			answers[i] = payment.Paid
		}
	}
	return answers, nil
})

// compensatorNeeds sweeps twice: the second time, the row of the first sweep exists. It finds that a closed
// order was paid. It also writes a reminder, and deletes an old one.
func compensatorNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	for _, statement := range []string{
		"INSERT INTO rechecks (name, checked_until) VALUES ('order-close/1s', '2026-01-01')",
		"INSERT INTO sweeps (name, hour) VALUES ('order-close', '2026-01-01')",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('late', '', 2, '2026-02-01', '2026-02-01', 2)",
		"INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('late', 'closed', '2026-02-01', '2026-02-01', 'sweep', 0, 0)",
		"INSERT INTO order_reminders (due_at, order_id, before_ms, created_at) VALUES ('2026-01-01', 'old', 1000, '2026-01-01')",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('soon', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) " +
			"+ INTERVAL 50 SECOND, 1)",
	} {
		if err := c.exec(ctx, statement); err != nil {
			return err
		}
	}
	return c.run(ctx, pipeline.Compensator, func(*kafka.Cluster, *config.Config) error { return nil }, func(*kafka.Cluster, *config.Config, string) error {
		return errors.Join(c.has(ctx, "SELECT COUNT(*) FROM receipts WHERE order_id = 'good' AND path = 'sweep'"),
			c.has(ctx, "SELECT COUNT(*) FROM sweeps WHERE ended_at > '2026-02-01' AND name = 'order-close'"),
			c.has(ctx, "SELECT COUNT(*) FROM late_payments WHERE order_id = 'late' AND source = 'recheck'"),
			c.has(ctx, "SELECT CASE WHEN MIN(order_id) = 'soon' THEN 1 ELSE 0 END FROM order_reminders"))
	})
}

// byKey opens the database with orders that are due by rule, in the table by_key.
func byKey(c *privilegeCase) (*store.Store, error) {
	due := mapping.TimeColumn{Column: "created", Type: mapping.UnixSeconds}
	return store.Open(store.Options{DSN: c.dsn, Delays: orderclose.Delays{Default: 30 * time.Minute}, Orders: &mapping.Mapping{
		Orders: "by_key", ID: mapping.Key{Column: "id", Type: mapping.Integer}, Status: mapping.Status{Column: "status", From: mapping.IntValue(0),
			To: mapping.IntValue(2)},
		Due: due, Created: &due, ByRule: true,
	}})
}

// ruleNeeds finds and closes orders that are due by rule. Their table has only its primary key.
func ruleNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	id := "BIGINT AUTO_INCREMENT PRIMARY KEY"
	if c.postgres {
		id = "bigserial PRIMARY KEY"
	}
	created := time.Now().Add(-time.Hour).Unix()
	for _, statement := range []string{
		"CREATE TABLE by_key (id " + id + ", status INT NOT NULL, created BIGINT NOT NULL)",
		fmt.Sprintf("INSERT INTO by_key (id, status, created) VALUES (1, 0, %d), (2, 0, %[1]d)", created),
		"INSERT INTO order_delays (pipeline, category, since_us, delay_us) VALUES ('', '', 0, 1800000000)",
		"GRANT SELECT, UPDATE ON by_key TO " + c.user,
	} {
		if err := c.exec(ctx, statement); err != nil {
			return err
		}
	}
	db, err := byKey(c)
	if err != nil {
		return err
	}
	defer db.Close()
	found, err := db.Overdue(ctx, time.Now(), orderclose.Order{}, 10)
	if err != nil || len(found) != 2 {
		return fmt.Errorf("a page has %v: %w", found, err)
	}
	out, err := db.CloseOrders(ctx, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "2"}})
	if err == nil && out[0].Verdict != orderclose.Closed {
		err = fmt.Errorf("a close returns %+v", out)
	}
	return err
}

// outboxNeeds publishes an event and a schedule.
func outboxNeeds(ctx context.Context, _ *testing.T, c *privilegeCase) error {
	dialect := producer.MySQL
	if c.postgres {
		dialect = producer.Postgres
	}
	box, err := producer.NewOutbox(producer.OutboxOptions{Dialect: dialect})
	if err != nil {
		return err
	}
	now := time.Now()
	if err := box.Add(ctx, orderclose.SQL(c.root), orderclose.Order{ID: "later", CreatedAt: now, Due: now.Add(time.Minute)}); err != nil {
		return err
	}
	if err := c.exec(ctx, "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('good', '{}', UTC_TIMESTAMP(3))"); err != nil {
		return err
	}
	return c.run(ctx, pipeline.Outbox, func(*kafka.Cluster, *config.Config) error { return nil }, func(k *kafka.Cluster, cfg *config.Config, _ string) error {
		return errors.Join(arrived(ctx, k, cfg.Topics.Events), arrived(ctx, k, cfg.Buckets[1].Topic),
			c.has(ctx, "SELECT CASE WHEN (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules) = 0 THEN 1 ELSE 0 END"))
	})
}

// viewerNeeds reads the version of the schema, and runs the query of the runbook and the commands that only read.
func viewerNeeds(ctx context.Context, t *testing.T, c *privilegeCase) error {
	db, err := store.Open(store.Options{DSN: c.dsn})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrated(ctx); err != nil {
		return err
	}
	if _, err := db.SweepHours(ctx, "order-close", time.Time{}, 1); err != nil {
		return err
	}
	section, _ := runbook.At("is-everything-well")
	if _, err := db.DB().ExecContext(ctx, strings.Join(section.Commands("Meaning", "sql"), " ")); err != nil {
		return err
	}
	return c.cli(ctx, t, []string{"order", "good"}, []string{"audit", "--from", "3h"}, []string{"status"},
		[]string{"payments", "late"}, []string{"actions"})
}

// operatorNeeds pauses closing, resumes it, resolves a late payment, and writes the event of a close again.
func operatorNeeds(ctx context.Context, t *testing.T, c *privilegeCase) error {
	if err := c.exec(ctx, "INSERT INTO late_payments (id, order_id, payment_id, source, found_at) VALUES (17, 'good', 'p', 'callback', "+
		"UTC_TIMESTAMP(3))"); err != nil {
		return err
	}
	if err := c.exec(ctx, "INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"+
		" VALUES ('good', 'closed', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE, 'sweep', 0, 0)"); err != nil {
		return err
	}
	return c.cli(ctx, t, []string{"pause", "--for", "1m", "--reason", "one"}, []string{"pause", "--for", "1m", "--reason", "two"}, []string{"resume"},
		[]string{"payments", "resolve", "17", "--refunded", "--yes"}, []string{"events", "again", "--from", "3h", "--yes"})
}

// migrateNeeds creates the schema.
func migrateNeeds(ctx context.Context, t *testing.T, c *privilegeCase) error {
	if err := c.cli(ctx, t, []string{"migrate"}); err != nil {
		return err
	}
	db, err := byKey(c)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.RecordDelays(ctx)
}

// cli runs commands of the production binary without Kafka until one fails.
func (c *privilegeCase) cli(ctx context.Context, t *testing.T, commands ...[]string) error {
	path, err := binary()
	if err != nil {
		return err
	}
	file := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(file, []byte("buckets: [1s]\ncloser: {payment: {url: \"http://127.0.0.1:1/\"}}\n"), 0o600); err != nil {
		return err
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, path, append(args, "--config", file)...)
		cmd.Env = []string{config.EnvDSN + "=" + c.dsn}
		if args[0] == "status" { // which needs Kafka, whether it answers or not
			cmd.Env = append(cmd.Env, config.EnvBrokers+"=127.0.0.1:1")
		}
		// 6: without Kafka, some parts cannot be checked
		if out, err := cmd.CombinedOutput(); err != nil && (cmd.ProcessState.ExitCode() != 6 || bytes.Contains(out, []byte("denied"))) {
			return fmt.Errorf("orderclose %v: %w\n%s", args, err, out)
		}
	}
	return nil
}
