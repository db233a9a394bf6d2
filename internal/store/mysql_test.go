package store_test

import (
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestSuite(t *testing.T) { eachDatabase(t, func(t *testing.T) { storetest.Run(t, server(t)) }) }

func TestMySQL_SettingsAreForced(t *testing.T) { eachServer(t, settingsAreForced) }

func settingsAreForced(t *testing.T) {
	cfg := must.Get(mysql.ParseDSN(migratedDatabase(t)))(t)
	cfg.Loc = time.Local
	cfg.ParseTime, cfg.ClientFoundRows = false, true
	cfg.Params["time_zone"] = "'+08:00'"
	cfg.Params["sql_mode"] = "''"
	cfg.Params["transaction_isolation"] = "'SERIALIZABLE'"
	s := openMigrated(t, store.Options{DSN: cfg.FormatDSN()})
	must.Do(t, s.Ping(t.Context()))

	var zone, mode string
	must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT @@session.time_zone, @@session.sql_mode").Scan(&zone, &mode))
	expect.That(t, zone == "+00:00" && strings.Contains(mode, "STRICT"), "the session's zone is %q and its mode %q; want +00:00 and a strict one", zone, mode)
	now, err := s.Now(t.Context())
	d := time.Since(now).Abs()
	expect.That(t, err == nil && d <= time.Hour && now.Location() == time.UTC, "the database's clock says %v, %v; it is %v off", now, err, d)
	overdue(t, s, "a")
	if _, err := scenario.OrdersOf(s).Pay(t.Context(), "a", "p"); err != nil {
		t.Error(err)
	}
	if a, err := scenario.OrdersOf(s).Pay(t.Context(), "a", "p"); err != nil || a != shopdb.AlreadyPaid {
		t.Errorf("a second payment: %v, %v; want already_paid, as nothing was changed", a, err)
	}
}

// The server's counters report how many rows a page read.
func TestMySQL_PageReadsOneIndexRowPerRowFound(t *testing.T) {
	eachServer(t, pageReadsOneIndexRowPerRowFound)
}

func pageReadsOneIndexRowPerRowFound(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	now := must.Get(s.Now(t.Context()))(t)
	const n = 3000
	for status := range 3 { // as many paid and closed orders
		values := strings.TrimSuffix(strings.Repeat("(?, '', ?, ?, ?, 1), ", n), ", ")
		var args []any
		for i := range n {
			due := now.Add(time.Duration(i/3-n) * time.Second)
			args = append(args, strconv.Itoa(status)+"-"+strconv.Itoa(10000+i), status, due, due)
		}
		exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES "+values, args...)
	}

	var after orderclose.Order
	for page := range 5 {
		exec(t, s.DB(), "FLUSH STATUS")
		orders := must.Get(s.Overdue(t.Context(), now, after, 200))(t)
		must.That(t, len(orders) == 200, "page %d has %d orders, want 200", page, len(orders))
		read := handlerReads(t, s.DB())
		expect.That(t, read <= 200+10, "page %d of 200 orders read %d rows", page, read)
		after = orders[len(orders)-1]
	}
	exec(t, s.DB(), "FLUSH STATUS")
	orders, _, more, err := s.OverdueNow(t.Context(), 0)
	must.Do(t, err)
	if read := handlerReads(t, s.DB()); read > 1000+20 || !more || len(orders) != 1000 {
		t.Errorf("%d of 3,000 overdue orders were found in %d rows", len(orders), read)
	}
}

// handlerReads returns how many rows the connection read from tables and indexes.
func handlerReads(t *testing.T, db *sql.DB) (sum int) {
	t.Helper()
	rows := must.Get(db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'"))(t)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		must.Do(t, rows.Scan(&name, &n))
		sum += n
	}
	must.Do(t, rows.Err())
	return sum
}

func TestCreateDatabase_RefusesAnExistingDatabase(t *testing.T) { eachServer(t, databaseThatExists) }

func databaseThatExists(t *testing.T) {
	dsn := ownDatabase(t)
	cfg, err := mysql.ParseDSN(dsn)
	must.Do(t, err)
	if _, _, err = scenario.CreateDatabase(t.Context(), dsn, nil, cfg.DBName); err == nil || !strings.Contains(err.Error(), "database exists") {
		t.Errorf("error %v; want that the database exists", err)
	}
	if _, _, err = scenario.CreateDatabase(t.Context(), dsn, nil, "no`name"); err == nil {
		t.Error("a name that must be quoted was accepted")
	}
}

// The steps can be repeated, so they would take another program's table for their own.
func TestMySQL_AForeignTableIsNotTakenForOurs(t *testing.T) { eachServer(t, foreignTable) }

func foreignTable(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t)})
	exec(t, s.DB(), "CREATE TABLE stock (a INT)")
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "a table stock that orderclose did not create") {
		t.Errorf("error %v; want one that names the table", err)
	}
	got := texts(t, s, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	expect.That(t, got == "stock", "the database has %s", got)
	exec(t, s.DB(), "DROP TABLE stock")
	must.Do(t, s.Migrate(t.Context()))
}

// The server commits each CREATE TABLE by itself.
func TestMySQL_AMigrationThatStoppedInAStepGoesOn(t *testing.T) { eachServer(t, migrationStopped) }

func migrationStopped(t *testing.T) {
	s := openMigrated(t, store.Options{})
	for _, q := range []string{
		"DROP TABLE orders", "DROP TABLE pauses", "DELETE FROM orderclose_schema",
	} {
		exec(t, s.DB(), q)
	}
	must.Do(t, s.Migrate(t.Context()))
	must.Do(t, s.Migrated(t.Context()))
	overdue(t, s, "a")
	must.Do(t, <-closeA(t, s))
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
