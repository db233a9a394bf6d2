package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestSuite(t *testing.T) { eachDatabase(t, func(t *testing.T) { storetest.Run(t, server(t)) }) }

// The server's counters report how many rows a page read.
func TestMySQL_PageReadsOneIndexRowPerRowFound(t *testing.T) {
	eachServer(t, pageReadsOneIndexRowPerRowFound)
}

func pageReadsOneIndexRowPerRowFound(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	now := must.Get(s.Now(t.Context()))(t)
	for status := range 3 { // as many paid and closed orders
		exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT CONCAT(?, '-', 10000 + seq), '', ?, UTC_TIMESTAMP(3),"+
			" UTC_TIMESTAMP(3) - INTERVAL 3000 - FLOOR(seq / 3) SECOND, 1 FROM "+numbers(3000), status, status)
	}

	var orders []orderclose.Order
	for page := range 5 {
		var after orderclose.Order
		if page > 0 {
			after = orders[len(orders)-1]
		}
		read := rowsRead(t, s, func() { orders = must.Get(s.Overdue(t.Context(), now, after, 200))(t) })
		must.That(t, len(orders) == 200 && read <= 200+10, "page %d has %d orders, want 200; it read %d rows", page, len(orders), read)
	}
	var more bool
	read := rowsRead(t, s, func() {
		var err error
		orders, _, more, err = s.OverdueNow(t.Context(), 0)
		must.Do(t, err)
	})
	expect.That(t, read <= 1000+20 && more && len(orders) == 1000, "%d of 3,000 overdue orders were found in %d rows", len(orders), read)
}

func TestCreateDatabase_RefusesAnExistingDatabase(t *testing.T) { eachServer(t, databaseThatExists) }

func databaseThatExists(t *testing.T) {
	dsn := ownDatabase(t)
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	_, _, err := scenario.CreateDatabase(t.Context(), dsn, nil, cfg.DBName)
	expect.Says(t, err, "database exists", "a database that exists")
	if _, _, err := scenario.CreateDatabase(t.Context(), dsn, nil, "no`name"); err == nil {
		t.Error("a name that must be quoted was accepted")
	}
}

// The server commits each CREATE TABLE by itself.
func TestMySQL_AMigrationThatStoppedInAStepGoesOn(t *testing.T) { eachServer(t, migrationStopped) }

func migrationStopped(t *testing.T) {
	s := openMigrated(t, store.Options{})
	for _, q := range []string{"DROP TABLE pauses", "DELETE FROM orderclose_schema", "ALTER TABLE orders RENAME COLUMN payment_id TO other"} {
		exec(t, s.DB(), q)
	}
	expect.Says(t, s.Migrate(t.Context()), "payment_id", "a shop's own table of orders")
	exec(t, s.DB(), "ALTER TABLE orders RENAME COLUMN other TO payment_id")
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, s.Migrated(t.Context()))
	overdue(t, s, "a")
	must.Do(t, <-closeA(t, s))

	empty := open(t, store.Options{DSN: ownDatabase(t)}) // the first table is there, and no row says so
	var schema strings.Builder
	must.Do(t, empty.WriteMigrations(&schema))
	_, first, _ := strings.Cut(schema.String(), "\nCREATE TABLE")
	first, _, _ = strings.Cut(first, ";\n")
	exec(t, empty.DB(), "CREATE TABLE"+first)
	for range 2 {
		must.Do(t, empty.Migrate(t.Context()))
		must.Do(t, empty.Migrated(t.Context()))
	}
}

func TestMigrate_ServersMigrateOnce(t *testing.T) { eachDatabase(t, serversMigrateOnce) }

func serversMigrateOnce(t *testing.T) {
	dsn := ownDatabase(t)
	errs := make(chan error)
	for range 4 {
		s := open(t, store.Options{DSN: dsn})
		go func() { errs <- s.Migrate(t.Context()) }()
	}
	for range 4 {
		err := <-errs
		expect.That(t, err == nil, "one of four that migrate at once: %v", err)
	}
	must.Do(t, open(t, store.Options{DSN: dsn}).Migrated(t.Context()))
}

// A server may have other defaults: MyISAM, rows in which the longest key does not fit, a collation that ignores case, and a primary key for each table.
func TestMySQL_TheSchemaDoesNotDependOnDefaults(t *testing.T) { eachServer(t, schemaWithOtherDefaults) }

func schemaWithOtherDefaults(t *testing.T) {
	cfg := must.Get(mysql.ParseDSN(ownDatabase(t)))(t)
	cfg.Params = map[string]string{"default_storage_engine": "'MyISAM'", "innodb_strict_mode": "1"}
	if kindOf(t) == "mysql" {
		cfg.Params["sql_require_primary_key"] = "1"
	}
	s := open(t, store.Options{MySQL: cfg})
	exec(t, s.DB(), "ALTER DATABASE `"+cfg.DBName+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, s.Migrated(t.Context()))
	other := texts(t, s, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND (engine <> 'InnoDB' OR row_format <> 'Dynamic')")
	must.That(t, other == "", "tables with another engine or row format: %s", other)
	ignore := texts(t, s, "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns WHERE table_schema = DATABASE() AND "+
		"collation_name LIKE '%\\_ci' AND column_name <> 'reason'")
	must.That(t, ignore == "", "columns whose collation ignores case: %s", ignore)
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	overdue(t, s, "a")
	must.Do(t, <-closeA(t, s))
}

// A server ends the connection at a statement that is longer than its max_allowed_packet. The events of a batch are longer, and then one of a single
// order is. By default MariaDB takes 16 MB, and MySQL 64 MB.
func TestMySQL_LongEventsHoldUpNoOtherOrder(t *testing.T) { on(t, longEvents, "mariadb") }

func longEvents(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: text}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_ms}
  event: {columns: [note]}
  items: none
  stock: none
`)})
	exec(t, s.DB(), "CREATE TABLE t_order (id VARCHAR(64) PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, note LONGTEXT, KEY st (state, due, id))")
	exec(t, s.DB(), "INSERT INTO t_order SELECT CONCAT('o', seq), 0, 1, REPEAT('x', @@max_allowed_packet DIV IF(seq = 13, 1, 8)) FROM seq_1_to_13")
	must.Do(t, s.Migrate(t.Context()))
	var reqs []orderclose.CloseRequest
	for i := range 13 {
		reqs = append(reqs, orderclose.CloseRequest{OrderID: fmt.Sprint("o", i+1)})
	}
	wantVerdicts(t, s, orderclose.Closed, reqs[:12]...)
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs[12:])
	expect.That(t, err != nil && !errors.Is(err, orderclose.ErrUnavailable), "an event that is longer alone: %v", err)
	now := must.Get(s.Now(t.Context()))(t)
	n, _, err := s.ClosedAgain(t.Context(), now.Add(-time.Hour), now.Add(time.Hour), store.ReceiptKey{}, 500)
	expect.That(t, n == 12 && err == nil, "%d events are written again, %v", n, err)
}
