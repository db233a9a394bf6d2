package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// Each lock that InnoDB knows of the rows of one order, held by a session of the shop, keeps only that order open. What is locked is drawn from
// the schema: each index of each table that a close reads or writes, shared or exclusive, at each isolation. No close waits for a lock of an
// order or of its lines: such a wait would outlast the connection. make test plays a third of them each day.
func TestLocks_EachEntryOfAnIndexDelaysItsOrderOnly(t *testing.T) { eachServer(t, eachEntry) }

// indexedShop is spelling with further indexes.
func indexedShop(t *testing.T, dsn string) (m *mapping.Mapping, s *store.Store) {
	of := *spelling
	of.ClosedAt = []*mapping.TimeColumn{{Column: "closed", Type: mapping.UnixSeconds}}
	s = open(t, store.Options{DSN: dsn, Orders: &of})
	createTables(t, s, "ALTER TABLE o ADD closed INT NULL, ADD buyer VARCHAR(20) NOT NULL DEFAULT 'ann', ADD twice INT AS (status * 2) VIRTUAL,"+
		" ADD KEY st (status), ADD KEY buyer (buyer), ADD KEY mixed (buyer, status), ADD KEY closed (closed), ADD KEY twice (twice)",
		"ALTER TABLE g ADD KEY free (free), ADD KEY held (held, sku)", "INSERT INTO g VALUES ('guard', 1, 2)", "UPDATE g SET held = 100000 WHERE sku = 'ink'")
	return &of, s
}

// heldLock is a lock of an index that a session of the shop holds.
type heldLock struct {
	table, index, mode string
	columns            []string
	isolation          sql.IsolationLevel
}

// locksOf returns the locks of each index of tables.
func locksOf(t *testing.T, s *store.Store, tables ...string) (all []heldLock) {
	for _, table := range tables {
		for row := range strings.SplitSeq(texts(t, s, "SELECT CONCAT_WS(' ', index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ' '))"+
			" FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? GROUP BY index_name", table), ", ") {
			for _, mode := range []string{" LOCK IN SHARE MODE", " FOR UPDATE"} {
				for _, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
					of := strings.Fields(row)
					all = append(all, heldLock{table, of[0], mode, of[1:], isolation})
				}
			}
		}
	}
	return all
}

// hold locks the entry of a row. It reads no column that is not in the index, so a shared lock is one of the entry alone.
func (l heldLock) hold(t *testing.T, db *sql.DB, key, id string) *sql.Tx {
	t.Helper()
	var args []any
	where := ""
	for _, column := range append(l.columns, key) {
		var value sql.NullString
		must.Do(t, db.QueryRowContext(t.Context(), "SELECT CAST("+column+" AS CHAR) FROM "+l.table+" WHERE "+key+" = ?", id).Scan(&value))
		args, where = append(args, value), where+" AND "+column+" <=> ?"
	}
	tx := must.Get(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: l.isolation}))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	rows := must.Get(tx.QueryContext(t.Context(), "SELECT 1 FROM "+l.table+" FORCE INDEX ("+l.index+") WHERE TRUE"+where+l.mode, args...))(t)
	must.That(t, rows.Next(), "%+v: no row", l)
	must.Do(t, rows.Close())
	return tx
}

func eachEntry(t *testing.T) {
	dsn := ownDatabase(t)
	m, s := indexedShop(t, dsn)
	hurried := open(t, store.Options{DSN: patient(t, dsn), Orders: m})
	today := time.Now().YearDay()
	for n, l := range locksOf(t, s, "o", "l", "g") {
		if !ring.All() && n%3 != today%3 {
			continue
		}
		what := fmt.Sprintf("%s of index %s of table %s at %v", l.mode, l.index, l.table, l.isolation)
		var ids []string
		sku := fmt.Sprintf("s%03d", n)
		exec(t, s.DB(), "INSERT INTO g VALUES (?, 0, 1)", sku)
		for i := range 10 {
			id, of := fmt.Sprintf("%03d-%d", n, i), "ink"
			if i == 5 {
				of = sku
			}
			exec(t, s.DB(), "INSERT INTO o (no, status, due) VALUES (?, 0, ?)", id, n+1)
			exec(t, s.DB(), "INSERT INTO l VALUES (?, ?, 1)", id, of)
			ids = append(ids, id)
		}
		closer, key, held, said := hurried, "no", ids[5], map[string]string{"o": "order", "l": "a line of the order", "g": "SKU \"" + sku + "\" in table g"}[l.table]
		if l.table == "g" { // the close waits for its turn in the queue, and holds nothing
			closer, key, held = s, "sku", sku
		}
		tx := l.hold(t, s.DB(), key, held)
		out := must.Get(closer.CloseOrders(t.Context(), orderclose.PathPipeline, closeRequests(ids)))(t)
		for i, o := range out {
			if i == 5 && o.Verdict == orderclose.Contended {
				expect.Says(t, o.Err, said, "%s", what)
			} else {
				expect.That(t, o.Verdict == orderclose.Closed, "%s: %+v, want it to be closed", what, o)
			}
		}
		touched := l.table == "g" && l.index != "PRIMARY" || l.table == "o" && l.index != "buyer" || l.mode == " FOR UPDATE"
		expect.That(t, (out[5].Verdict == orderclose.Contended) == (touched || l.table == "g"), "%s: the order is %s", what, out[5].Verdict)
		must.Do(t, tx.Rollback())
		out = must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, closeRequests(ids)))(t)
		expect.That(t, out[5].Verdict == orderclose.Closed || out[5].Verdict == orderclose.AlreadyClosed, "%s: after the rollback %+v", what, out[5])
	}
	expect.Equal(t, texts(t, s, "SELECT COUNT(*) FROM o WHERE status <> 2 UNION ALL SELECT COUNT(*) FROM g WHERE sku LIKE 's%' AND held <> 0"), "0, 0",
		"what is left open")
}

func closeRequests(ids []string) (all []orderclose.CloseRequest) {
	for _, id := range ids {
		all = append(all, orderclose.CloseRequest{OrderID: id})
	}
	return all
}

// The shop's own job locks unpaid orders through an index at READ COMMITTED: first the entry of each, then its row. Neither the job nor a close
// is the victim of a deadlock.
func TestLocks_TheShopsOwnJobMeetsNoDeadlock(t *testing.T) { eachServer(t, ownJob) }

func ownJob(t *testing.T) {
	_, s := indexedShop(t, ownDatabase(t))
	n := 300
	if ring.All() {
		n = 3000
	}
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("%05d", i))
	}
	exec(t, s.DB(), "INSERT INTO o (no, status, due) SELECT LPAD(seq - 1, 5, '0'), 0, seq FROM "+numbers(n))
	exec(t, s.DB(), "INSERT INTO l SELECT no, 'ink', 1 FROM o")
	ctx, end := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	for _, job := range []string{
		"SELECT no FROM o FORCE INDEX (status) WHERE status = 0 AND due < 100000 ORDER BY due LIMIT 40 FOR UPDATE",
		"SELECT no FROM o FORCE INDEX (twice) WHERE twice = 0 LIMIT 40 FOR UPDATE",
		"UPDATE o FORCE INDEX (status) SET buyer = 'bob' WHERE status = 0 AND due < 100000 ORDER BY due LIMIT 10",
	} {
		jobs.Go(func() {
			for ctx.Err() == nil {
				tx, err := s.DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err == nil {
					_, err = tx.ExecContext(t.Context(), job)
					_ = tx.Rollback()
				}
				if my, is := errors.AsType[*mysql.MySQLError](err); is && my.Number == 1213 {
					t.Errorf("%s: %v", job, err)
				}
			}
		})
	}
	for left := ids; len(left) > 0; {
		part := left[:min(20, len(left))]
		left = left[len(part):]
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, closeRequests(part))
		if err != nil {
			wantError(t, err, orderclose.ErrContended)
			left = append(left, part...)
		}
		for _, o := range out {
			if o.Verdict == orderclose.Contended {
				left = append(left, o.OrderID)
			}
		}
	}
	end()
	jobs.Wait()
	expect.Equal(t, texts(t, s, "SELECT COUNT(*) FROM o WHERE status <> 2"), "0", "orders that are open")
}
