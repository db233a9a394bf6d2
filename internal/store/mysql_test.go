package store_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dsnVariables name the real servers of each kind.
var dsnVariables = map[string]string{"mariadb": "ORDERCLOSE_DB_DSN", "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"}

// eachServer runs test on each kind of real server at the same time, as a subtest named after it. On one server only
// the promises of a suite run in parallel. Other tests look at all transactions of a server, or change a setting.
func eachServer(t *testing.T, test func(t *testing.T)) {
	for _, server := range []string{"mariadb", "mysql"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			realDSN(t)
			test(t)
		})
	}
}

// realDSN returns the DSN of the real server that eachServer chose, else of the first server.
// Without a server it skips or fails the test.
func realDSN(t *testing.T) string {
	t.Helper()
	kind := "mariadb"
	for part := range strings.SplitSeq(t.Name(), "/") {
		if _, ok := dsnVariables[part]; ok {
			kind = part
		}
	}
	return dsnOf(t, kind)
}

// dsnOf returns the DSN of the real server of a kind. Without a server it skips or fails the test.
func dsnOf(t *testing.T, kind string) string {
	t.Helper()
	variable := dsnVariables[kind]
	dsn := os.Getenv(variable)
	switch {
	case dsn != "":
	case os.Getenv("REQUIRE_REAL") == "1":
		t.Fatalf("%s names no server, and REQUIRE_REAL=1 wants one", variable)
	default:
		t.Skipf("%s names no server", variable)
	}
	return dsn
}

// ownDatabase creates a database, drops it when the test ends, and returns its DSN.
func ownDatabase(t *testing.T) string {
	t.Helper()
	return databaseOn(t, realDSN(t))
}

// databaseOn is ownDatabase on a server of its own.
func databaseOn(t *testing.T, server string) string {
	t.Helper()
	dsn, drop, err := scenario.CreateDatabase(t.Context(), server, nil, "oc_"+strings.ToLower(rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

func open(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openMigrated opens a new database with the schema and a thousand of the SKU "ink".
func openMigrated(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	if o.DSN == "" {
		o.DSN = ownDatabase(t)
	}
	s := open(t, o)
	must(t, s.Migrate(t.Context()))
	must(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// overdue creates an order of one "ink" that was due a minute ago.
func overdue(t *testing.T, s *store.Store, id string) {
	t.Helper()
	now, err := s.Now(t.Context())
	must(t, err)
	o := orderclose.Order{ID: id, CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}
	must(t, scenario.OrdersOf(s).CreateOrder(t.Context(), o, []shopdb.Item{{SKU: "ink", Quantity: 1}}))
}

func exec(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query, args...)
	must(t, err)
}

func TestMySQL_Suite(t *testing.T) { eachServer(t, suite) }

func suite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store { return open(t, store.Options{DSN: ownDatabase(t)}) })
}

func TestMySQL_SettingsAreForced(t *testing.T) { eachServer(t, settingsAreForced) }

func settingsAreForced(t *testing.T) {
	cfg, err := mysql.ParseDSN(ownDatabase(t))
	must(t, err)
	cfg.Loc = time.Local
	cfg.ParseTime, cfg.ClientFoundRows = false, true
	cfg.Params["time_zone"] = "'+08:00'"
	cfg.Params["sql_mode"] = "''"
	cfg.Params["transaction_isolation"] = "'SERIALIZABLE'"
	s := openMigrated(t, store.Options{DSN: cfg.FormatDSN()})
	must(t, s.Ping(t.Context()))

	var zone, mode string
	must(t, s.DB().QueryRowContext(t.Context(), "SELECT @@session.time_zone, @@session.sql_mode").Scan(&zone, &mode))
	if zone != "+00:00" || !strings.Contains(mode, "STRICT") {
		t.Errorf("the session's zone is %q and its mode %q; want +00:00 and a strict one", zone, mode)
	}
	now, err := s.Now(t.Context())
	if d := time.Since(now).Abs(); err != nil || d > time.Minute || now.Location() != time.UTC {
		t.Errorf("the database's clock says %v, %v; it is %v off", now, err, d)
	}
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
	now, err := s.Now(t.Context())
	must(t, err)
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
		orders, err := s.Overdue(t.Context(), now, after, 200)
		must(t, err)
		if len(orders) != 200 {
			t.Fatalf("page %d has %d orders, want 200", page, len(orders))
		}
		if read := handlerReads(t, s.DB()); read > 200+10 {
			t.Errorf("page %d of 200 orders read %d rows", page, read)
		}
		after = orders[len(orders)-1]
	}
	exec(t, s.DB(), "FLUSH STATUS")
	orders, _, more, err := s.OverdueNow(t.Context(), 0)
	must(t, err)
	if read := handlerReads(t, s.DB()); read > 1000+20 || !more || len(orders) != 1000 {
		t.Errorf("%d of 3,000 overdue orders were found in %d rows", len(orders), read)
	}
}

// handlerReads returns how many rows the connection read from tables and indexes.
func handlerReads(t *testing.T, db *sql.DB) (sum int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		must(t, rows.Scan(&name, &n))
		sum += n
	}
	must(t, rows.Err())
	return sum
}

func TestCreateDatabase_RefusesAnExistingDatabase(t *testing.T) { eachServer(t, databaseThatExists) }

func databaseThatExists(t *testing.T) {
	dsn := ownDatabase(t)
	cfg, err := mysql.ParseDSN(dsn)
	must(t, err)
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
	if got := texts(t, s, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"); got != "stock" {
		t.Errorf("the database has %s", got)
	}
	exec(t, s.DB(), "DROP TABLE stock")
	must(t, s.Migrate(t.Context()))
}

// The server commits each CREATE TABLE by itself.
func TestMySQL_AMigrationThatStoppedInAStepGoesOn(t *testing.T) { eachServer(t, migrationStopped) }

func migrationStopped(t *testing.T) {
	s := openMigrated(t, store.Options{})
	for _, q := range []string{
		"DROP TABLE orders", "DROP TABLE pauses", "ALTER TABLE orderclose_schema DROP COLUMN oldest", "ALTER TABLE receipts DROP INDEX receipts_closed_at", "DELETE FROM orderclose_schema WHERE version_id > 3",
	} {
		exec(t, s.DB(), q)
	}
	must(t, s.Migrate(t.Context()))
	must(t, s.Migrated(t.Context()))
	overdue(t, s, "a")
	must(t, <-closeA(t, s))
}

func TestMySQL_ServersMigrateOnce(t *testing.T) { eachServer(t, serversMigrateOnce) }

func serversMigrateOnce(t *testing.T) {
	dsn := ownDatabase(t)
	errs := make(chan error)
	for range 4 {
		s := open(t, store.Options{DSN: dsn})
		go func() { errs <- s.Migrate(t.Context()) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("one of four that migrate at once: %v", err)
		}
	}
	must(t, open(t, store.Options{DSN: dsn}).Migrated(t.Context()))
}
