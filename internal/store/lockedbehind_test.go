package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// A close needs further rows than those of the order, its lines and its stock: behind triggers of each table that it writes, behind a foreign key, and in
// statements of on_close. A transaction that locks such a row of one order keeps that order open only: in one call the others are closed, and the
// error says where the lock is. What is locked is drawn from the schema: each index of each such table, shared or exclusive, at each isolation. At
// REPEATABLE READ gaps are locked too. make test plays a twelfth of them each day.
func TestLocks_ARowBehindACloseDelaysItsOrderOnly(t *testing.T) { eachDatabase(t, lockedBehind) }

// behindShop is spelling with a row in each of further tables for each order, with the order's id in the column no. Each order has a SKU of its own name.
func behindShop(t *testing.T) *store.Store {
	of := *spelling
	of.OnClose = []string{"INSERT INTO child (no) SELECT no FROM o WHERE no IN ({ids})", "UPDATE coupon SET n = n + 1 WHERE no IN ({ids})"}
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: &of})
	ddl := []string{
		"CREATE TABLE o (no VARCHAR(20) PRIMARY KEY, status INT NOT NULL, due INT NOT NULL)", "CREATE INDEX o_due ON o (status, due, no)",
		"CREATE TABLE l (no VARCHAR(20) NOT NULL, sku VARCHAR(20) NOT NULL, n INT NOT NULL)", "CREATE INDEX l_no ON l (no)",
		"CREATE TABLE g (sku VARCHAR(20) PRIMARY KEY, free INT NOT NULL, held INT NOT NULL)",
		"CREATE TABLE parent (no VARCHAR(20) PRIMARY KEY, n INT NOT NULL)", "CREATE TABLE coupon (no VARCHAR(20) PRIMARY KEY, n INT NOT NULL)",
		"CREATE INDEX coupon_n ON coupon (n, no)",
		"CREATE TABLE child (no VARCHAR(20) PRIMARY KEY, CONSTRAINT of_parent FOREIGN KEY (no) REFERENCES parent (no))",
	}
	for _, q := range ddl {
		exec(t, s.DB(), q)
	}
	must.Do(t, s.Migrate(t.Context()))
	for table, when := range map[string][2]string{"o": {"UPDATE", "no"}, "g": {"UPDATE", "sku"}, "receipts": {"INSERT", "order_id"},
		"outbox_events": {"INSERT", "order_id"}} {
		exec(t, s.DB(), "CREATE TABLE behind_"+table+" (no VARCHAR(20) PRIMARY KEY, n INT NOT NULL)")
		change := "UPDATE behind_" + table + " SET n = n + 1 WHERE no = NEW." + when[1]
		if !isPostgres(t) {
			exec(t, s.DB(), "CREATE TRIGGER on_"+table+" AFTER "+when[0]+" ON "+table+" FOR EACH ROW "+change)
			continue
		}
		exec(t, s.DB(), "CREATE FUNCTION on_"+table+"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "+change+"; RETURN NULL; END'")
		constraint, deferred := "", ""
		if table == "receipts" {
			constraint, deferred = "CONSTRAINT ", " DEFERRABLE INITIALLY DEFERRED"
		}
		exec(t, s.DB(), "CREATE "+constraint+"TRIGGER on_"+table+" AFTER "+when[0]+" ON "+table+deferred+" FOR EACH ROW EXECUTE FUNCTION on_"+table+"()")
	}
	return s
}

// behindTables returns the tables with a row for each order.
func behindTables(t *testing.T, s *store.Store) []string {
	here := "DATABASE()"
	if isPostgres(t) {
		here = "current_schema()"
	}
	return strings.Split(texts(t, s, "SELECT table_name FROM information_schema.columns WHERE table_schema = "+here+
		" AND column_name = 'no' AND table_name NOT IN ('o', 'l', 'child') ORDER BY table_name"), ", ")
}

// behindOrders creates four orders that are due, and returns their ids.
func behindOrders(t *testing.T, s *store.Store, n int, tables []string) (ids []string) {
	for i := range 4 {
		id := fmt.Sprintf("%03d-%d", n, i)
		exec(t, s.DB(), "INSERT INTO o (no, status, due) VALUES (?, 0, ?)", id, n+1)
		exec(t, s.DB(), "INSERT INTO l VALUES (?, ?, 1)", id, id)
		exec(t, s.DB(), "INSERT INTO g VALUES (?, 0, 1)", id)
		for _, table := range tables {
			exec(t, s.DB(), "INSERT INTO "+table+" VALUES (?, 0)", id)
		}
		ids = append(ids, id)
	}
	return ids
}

// gapLocks are statements at REPEATABLE READ that lock gaps of indexes: of one order, whose id is %s, or of all.
var gapLocks = map[string]bool{
	"SELECT 1 FROM child WHERE no = '%s' FOR UPDATE":                                 false,
	"SELECT 1 FROM child WHERE no = '%s' LOCK IN SHARE MODE":                         false,
	"SELECT COUNT(*) FROM receipts FOR UPDATE /* %s */":                              true,
	"SELECT COUNT(*) FROM outbox_events LOCK IN SHARE MODE /* %s */":                 true,
	"SELECT 1 FROM o FORCE INDEX (o_due) WHERE status = 2 LOCK IN SHARE MODE /*%s*/": true,
}

func lockedBehind(t *testing.T) {
	s := behindShop(t)
	tables := behindTables(t, s)
	must.That(t, len(tables) == 6, "%q", tables)
	type held struct {
		what string
		all  bool // keeps each order open
		hold func(id string) *sql.Tx
	}
	var cases []held
	if isPostgres(t) {
		for _, table := range tables {
			for _, mode := range []string{" FOR UPDATE", " FOR SHARE"} {
				for _, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
					cases = append(cases, held{fmt.Sprintf("%s of table %s at %v", mode, table, isolation), false, func(id string) *sql.Tx {
						tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: isolation}))(t)
						exec(t, tx, "SELECT n FROM "+table+" WHERE no = '"+id+"'"+mode)
						return tx
					}})
				}
			}
		}
	} else {
		for _, l := range locksOf(t, s, tables...) {
			cases = append(cases, held{fmt.Sprintf("%s of index %s of table %s at %v", l.mode, l.index, l.table, l.isolation), false, func(id string) *sql.Tx {
				return l.hold(t, s.DB(), "no", id)
			}})
		}
		for query, all := range gapLocks {
			cases = append(cases, held{"the gap of " + query, all, func(id string) *sql.Tx {
				for _, guard := range []string{id[:4] + "05", id[:4] + "15"} {
					exec(t, s.DB(), "INSERT INTO parent VALUES (?, 0)", guard)
					exec(t, s.DB(), "INSERT INTO child VALUES (?)", guard)
				}
				tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
				exec(t, tx, fmt.Sprintf(query, id))
				return tx
			}})
		}
	}
	slices.SortFunc(cases, func(a, b held) int { return strings.Compare(a.what, b.what) })
	today, locked := time.Now().YearDay(), 0
	for n, c := range cases {
		if !ring.All() && n%12 != today%12 {
			continue
		}
		ids := behindOrders(t, s, n, tables)
		tx := c.hold(ids[1])
		out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, closeRequests(ids)))(t)
		must.Do(t, tx.Rollback())
		var open []string
		for i, o := range out {
			if o.Verdict == orderclose.Contended && (i == 1 || c.all) {
				locked++
				open = append(open, o.OrderID)
				expect.Is(t, o.Err, orderclose.ErrContended, "%s", c.what)
				expect.Says(t, o.Err, "another transaction locks ", "%s", c.what)
				if isPostgres(t) {
					expect.Says(t, o.Err, `in relation "`+strings.Fields(c.what)[4]+`"`, "%s", c.what)
				}
			} else {
				expect.That(t, o.Verdict == orderclose.Closed, "%s: %+v, want it to be closed", c.what, o)
			}
		}
		expect.That(t, len(open) == 0 || !c.all || len(open) == 4, "%s: only %q are locked", c.what, open)
		for _, id := range open { // alone, which does not wait for the time in which a batch leaves them out
			wantVerdicts(t, s, orderclose.Closed, orderclose.CloseRequest{OrderID: id})
		}
	}
	must.That(t, locked > 0, "nothing was locked")
	left := texts(t, s, "SELECT COUNT(*) FROM o WHERE status <> 2 UNION ALL SELECT COUNT(*) FROM g WHERE held <> 0 OR free <> 1")
	expect.Equal(t, left, "0, 0", "what is left open")
}

// The name of a lock for which a connection waits. The MySQL of the tests has no performance_schema, where MySQL tells it.
func TestLocks_TheServerNamesALock(t *testing.T) { on(t, namedLock, "mariadb") }

func namedLock(t *testing.T) {
	dsn := ownDatabase(t)
	s := open(t, store.Options{DSN: patient(t, dsn), Orders: spelling})
	exec(t, s.DB(), "CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)")
	exec(t, s.DB(), "INSERT INTO counter VALUES (7, 0)")
	hold := begin(t, s.DB(), "UPDATE counter SET n = 1 WHERE id = 7")
	waiting := must.Get(s.DB().Conn(t.Context()))(t)
	var id int64
	must.Do(t, waiting.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
	done := make(chan error, 1)
	go func() {
		_, err := waiting.ExecContext(context.WithoutCancel(t.Context()), "UPDATE counter SET n = 2 WHERE id = 7")
		done <- errors.Join(err, waiting.Close())
	}()
	waitsFor(t, s.DB(), "UPDATE counter")
	var told string
	must.Do(t, s.DB().QueryRowContext(t.Context(), db.MySQLDialect.LockName, id).Scan(&told))
	must.Do(t, hold.Rollback())
	must.Do(t, <-done)
	expect.Says(t, errors.New(told), "counter, row 7, held by connection ", "the lock")
	expect.Says(t, errors.New(told), "of index PRIMARY of table ", "the lock")
}
