package testkit_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// simulate runs test under synctest, with a database that has an empty table t of one column.
func simulate(t *testing.T, test func(t *testing.T, f *testkit.Faults, db *sql.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := testkit.NewFaults(1)
		s := must.Get(sqlite.OpenWith(sqlite.Memory, sqlite.Options{Through: f.Wrap}))(t)
		defer s.Close()
		must.Get(s.DB().Exec("CREATE TABLE t (n INTEGER)"))(t)
		test(t, f, s.DB())
	})
}

// named returns the faults with a name whose first point is at.
func named(t *testing.T, name string, at testkit.Point) (some []testkit.Fault) {
	t.Helper()
	for _, f := range testkit.AllFaults() {
		if f.Name == name && f.At[0] == at {
			some = append(some, f)
		}
	}
	must.That(t, len(some) != 0, "there is no fault %q at that point", name)
	return some
}

// insert inserts a row in its own transaction.
func insert(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
		return err
	}
	return tx.Commit()
}

func rows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	must.Do(t, db.QueryRow("SELECT COUNT(*) FROM t").Scan(&n))
	return n
}

func TestFaults_LeaveTheStateThatADatabaseWouldLeave(t *testing.T) {
	for _, c := range []struct {
		name string
		at   testkit.Point
		err  error
		rows int
	}{
		{"commit lost before", testkit.Commit, mysql.ErrInvalidConn, 0},
		{"commit lost after", testkit.Commit, mysql.ErrInvalidConn, 1},
		{"deadlock", testkit.Statement, &mysql.MySQLError{Number: 1213}, 0},
		{"deadlock", testkit.Commit, &mysql.MySQLError{Number: 1213}, 0},
		{"connection lost", testkit.Begin, mysql.ErrInvalidConn, 0},
		{"down", testkit.Begin, driver.ErrBadConn, 0},
		{"session killed", testkit.Statement, &mysql.MySQLError{Number: 1927}, 0},
		{"slow", testkit.Begin, nil, 1},
	} {
		simulate(t, func(t *testing.T, f *testkit.Faults, db *sql.DB) {
			f.Set(1, named(t, c.name, c.at)...)
			err := insert(db)
			if !errors.Is(err, c.err) || f.Struck()[c.name] == 0 {
				t.Errorf("%s: %v after striking %d times; want %v", c.name, err, f.Struck()[c.name], c.err)
			}
			f.Set(0)
			n := rows(t, db)
			expect.That(t, n == c.rows, "%s left %d rows, want %d", c.name, n, c.rows)
			if err := insert(db); err != nil {
				t.Errorf("insert after the faults were removed: %v", err)
			}
		})
	}
}

func TestFaults_ATransactionEndsWithADeadlock(t *testing.T) {
	simulate(t, func(t *testing.T, f *testkit.Faults, db *sql.DB) {
		tx := must.Get(db.Begin())(t)
		f.Set(1, named(t, "deadlock", testkit.Statement)...)
		_, first := tx.Exec("INSERT INTO t VALUES (1)")
		f.Set(0)
		_, second := tx.Exec("INSERT INTO t VALUES (1)")
		if commit := tx.Commit(); first == nil || second == nil || commit == nil {
			t.Errorf("the deadlock: %v, a statement after it: %v, the commit: %v; want three errors", first, second, commit)
		}
		n := rows(t, db)
		expect.That(t, n == 0, "%d rows of a transaction that was rolled back", n)
	})
}

func TestFaults_ReadOnlyAllowsReads(t *testing.T) {
	simulate(t, func(t *testing.T, f *testkit.Faults, db *sql.DB) {
		f.Set(1, named(t, "read-only", testkit.Write)...)
		err := insert(db)
		expect.That(t, err != nil, "insert succeeded")
		n := rows(t, db)
		expect.That(t, n == 0, "%d rows", n)
	})
}

func TestFaults_SlowUsesTheSimulatedClock(t *testing.T) {
	simulate(t, func(t *testing.T, f *testkit.Faults, db *sql.DB) {
		f.Set(1, named(t, "slow", testkit.Begin)...)
		began := time.Now()
		expect.NoError(t, insert(db))
		expect.That(t, time.Since(began) != 0, "it took no time")
	})
}
