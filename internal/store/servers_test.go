package store_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}, storetest.GormLeak) }

// tests drops the databases that tests have shared.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	for _, p := range shared.pools {
		if err := p.Close(context.Background()); err != nil {
			println("drop a database of the tests:", err.Error())
			code = max(code, 1)
		}
	}
	return code
}

// shared are the databases with the reference schema, by the DSN of the server.
var shared struct {
	sync.Mutex
	pools map[string]*storetest.Pool
}

// dsnVariables name the real servers of each kind.
var dsnVariables = map[string]string{"mariadb": "ORDERCLOSE_DB_DSN", "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"}

// eachServer runs test on MariaDB and MySQL at the same time, as a subtest named after the server. On one server only
// the promises of a suite run in parallel. Other tests look at all transactions of a server, or change a setting.
func eachServer(t *testing.T, test func(t *testing.T)) { on(t, test, "mariadb", "mysql") }

// eachDatabase is eachServer, with PostgreSQL.
func eachDatabase(t *testing.T, test func(t *testing.T)) { on(t, test, "mariadb", "mysql", "postgres") }

// onPostgres is eachServer on PostgreSQL only.
func onPostgres(t *testing.T, test func(t *testing.T)) { on(t, test, "postgres") }

func on(t *testing.T, test func(t *testing.T), servers ...string) {
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			realDSN(t)
			test(t)
		})
	}
}

// kindOf returns the kind of the server that eachServer chose.
func kindOf(t *testing.T) string {
	t.Helper()
	for part := range strings.SplitSeq(t.Name(), "/") {
		if _, ok := dsnVariables[part]; ok {
			return part
		}
	}
	t.Fatal("no server was chosen")
	return ""
}

// snapshotIsolation reports whether the server refuses, at REPEATABLE READ, to lock a row that others have changed since the transaction read first.
func snapshotIsolation(t *testing.T, pool *sql.DB) bool {
	t.Helper()
	var name, value string
	err := pool.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
	must.That(t, err == nil || errors.Is(err, sql.ErrNoRows), "%v", err)
	return value == "ON"
}

// isPostgres reports whether the test is on PostgreSQL.
func isPostgres(t *testing.T) bool { return kindOf(t) == "postgres" }

// realDSN returns the DSN of the real server that eachServer chose. Without a server it skips or fails the test.
func realDSN(t *testing.T) string {
	t.Helper()
	variable := dsnVariables[kindOf(t)]
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

// server is the server of a suite. In make test MySQL plays only what databases do in their own ways.
func server(t *testing.T) storetest.Server {
	s := storetest.OnServer(realDSN(t))
	if kindOf(t) == "mysql" && !ring.All() {
		s.Only = storetest.Dialect
	}
	return s
}

// ownDatabase creates a database, drops it when the test ends, and returns its DSN.
func ownDatabase(t *testing.T) string {
	t.Helper()
	return storetest.NewDatabase(t, realDSN(t))
}

// migratedDatabase returns the DSN of a database with the reference schema and without rows, which other tests use later.
func migratedDatabase(t *testing.T) string {
	t.Helper()
	dsn := realDSN(t)
	shared.Lock()
	if shared.pools == nil {
		shared.pools = map[string]*storetest.Pool{}
	}
	if shared.pools[dsn] == nil {
		shared.pools[dsn] = storetest.NewPool(dsn, nil, nil)
	}
	pool := shared.pools[dsn]
	shared.Unlock()
	return pool.Take(t)
}

func open(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	s := must.Get(store.Open(o))(t)
	t.Cleanup(func() {
		expect.NoError(t, s.Close())
	})
	return s
}

// openMigrated opens a database with the schema and a thousand of the SKU "ink". Without a DSN it is a migratedDatabase.
func openMigrated(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	if o.DSN == "" {
		o.DSN = migratedDatabase(t)
	}
	s := open(t, o)
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	return s
}

// openShop opens a database with the tables of a shop, runs further statements, and migrates.
func openShop(t *testing.T, dsn string, shop storetest.Shop, more ...string) *store.Store {
	t.Helper()
	s := open(t, store.Options{DSN: dsn, Orders: shop.Mapping})
	for _, statement := range slices.Concat(shop.DDL, more) {
		exec(t, s.DB(), statement)
	}
	must.Do(t, s.Migrate(t.Context()))
	return s
}

// overdue creates orders of one "ink" that were due a minute ago.
func overdue(t *testing.T, s *store.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		overdueWith(t, s, id, shopdb.Item{SKU: "ink", Quantity: 1})
	}
}

// overdueWith creates an order that was due a minute ago.
func overdueWith(t *testing.T, s *store.Store, id string, items ...shopdb.Item) {
	t.Helper()
	now := must.Get(s.Now(t.Context()))(t)
	o := orderclose.Order{ID: id, CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}
	must.Do(t, scenario.OrdersOf(s).CreateOrder(t.Context(), o, items))
}

func exec(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	must.Get(db.ExecContext(t.Context(), query, args...))(t)
}

// newUser creates a user of MariaDB or MySQL, and returns its DSN and a function that changes its rights: change("GRANT", "SELECT ON orders").
func newUser(t *testing.T, admin *store.Store, dsn string) (own string, change func(verb string, rights ...string)) {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.User, cfg.Passwd = "oc_"+strings.ToLower(rand.Text()[:16]), ""
	exec(t, admin.DB(), "CREATE USER "+cfg.User+"@'%' IDENTIFIED BY ''")
	t.Cleanup(func() { _, _ = admin.DB().Exec("DROP USER " + cfg.User + "@'%'") })
	return cfg.FormatDSN(), func(verb string, rights ...string) {
		t.Helper()
		to := map[string]string{"GRANT": " TO ", "REVOKE": " FROM "}[verb]
		for _, right := range rights {
			exec(t, admin.DB(), verb+" "+strings.Replace(right, " ON ", " ON `"+cfg.DBName+"`.", 1)+to+cfg.User+"@'%'")
		}
	}
}

// numbers is a table of MariaDB and MySQL with the column seq, from 1 to n, at most 10,000.
func numbers(n int) string {
	const digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6" +
		" UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	return fmt.Sprintf("(SELECT * FROM (SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS seq FROM %[1]s AS a, %[1]s AS b, %[1]s AS c, %[1]s AS e) AS x"+
		" WHERE seq <= %[2]d) AS q", digits, n)
}

// rowsRead returns how many rows the only connection of a store to MariaDB or MySQL reads from tables and indexes while do runs.
func rowsRead(t *testing.T, s *store.Store, do func()) (sum int) {
	t.Helper()
	exec(t, s.DB(), "FLUSH STATUS")
	do()
	rows := must.Get(s.DB().QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'"))(t)
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

// lockTimeouts returns a DSN, and a function that counts the statements whose wait for a lock the server has ended on connections of that DSN.
func lockTimeouts(t *testing.T, dsn string) (counted string, count func() int64) {
	t.Helper()
	return storetest.Counted(t, dsn, "Lock wait timeout exceeded", "canceling statement due to lock timeout")
}

// waitsLookLikeNOWAIT reports whether the server's error for NOWAIT has the text of a wait that has ended, so that lockTimeouts counts both.
func waitsLookLikeNOWAIT(t *testing.T) bool { return strings.HasSuffix(t.Name(), "/mariadb") }
