package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	due "github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Another session locks the whole table: reads and counts wait for it until the server ends them, and nothing goes on there.
func TestReads_AreEndedByTheServer(t *testing.T) { eachDatabase(t, slowReads) }

func slowReads(t *testing.T) {
	s := openMigrated(t, store.Options{})
	s.SetReadLimit(50 * time.Millisecond)
	overdue(t, s, "a")
	now := must.Get(s.Now(t.Context()))(t)
	other := must.Get(s.DB().Conn(t.Context()))(t)
	lock, unlock := "LOCK TABLES orders WRITE, stock WRITE", "UNLOCK TABLES"
	running := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info IS NOT NULL AND id <> CONNECTION_ID()"
	if isPostgres(t) {
		lock, unlock = "BEGIN; LOCK TABLE orders, stock IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
		running = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"
	}
	exec(t, other, lock)
	_, err := s.ReadOverdue(t.Context(), due.Window{To: now})
	expect.That(t, errors.Is(err, due.ErrSlow) && errors.Is(err, orderclose.ErrUnavailable), "%v", err)
	counts, err := s.CountOrders(t.Context())
	expect.That(t, err == nil && counts.Cut && counts.Never == 0, "%+v, %v", counts, err)
	limited := store.Limited(t.Context(), 50*time.Millisecond)
	for name, read := range map[string]func() error{
		"the evidence": func() error { _, err := s.Evidence(t.Context()); return err },
		"due":          func() error { _, err := s.DueBetween(limited, now, now, orderclose.Order{}, 1); return err },
		"history":      func() error { _, err := s.OrderHistory(limited, "a"); return err },
		"overdue now":  func() error { _, _, _, err := s.OverdueNow(limited, 0); return err },
	} {
		err := read()
		expect.That(t, store.IsSlow(err) && errors.Is(err, orderclose.ErrUnavailable), "%s: %v", name, err)
	}
	expect.Equal(t, texts(t, s, running), "0", "statements that go on")
	exec(t, other, unlock)
	must.Do(t, other.Close())
	s.SetReadLimit(0)
	found := must.Get(s.ReadOverdue(t.Context(), due.Window{To: now}))(t)
	counts = must.Get(s.CountOrders(t.Context()))(t)
	expect.That(t, len(found.Orders) == 1 && counts.Overdue == 1 && !counts.Cut, "%+v, %+v", found, counts)
}

// Of 3,000 overdue orders a read of 100 rows reads 100 of the index, and each of these some times more in its temporary tables.
func TestMySQL_AReadOfTheLoopEntersTheIndex(t *testing.T) { eachServer(t, rowsOfARead) }

func rowsOfARead(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	now := must.Get(s.Now(t.Context()))(t)
	exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT 999 + seq, '', (seq - 1) % 10 % 3, UTC_TIMESTAMP(3),"+
		" UTC_TIMESTAMP(3) - INTERVAL 1000 + 10 * FLOOR((seq - 1) / 10) SECOND, 1 FROM "+numbers(10_000))
	middle := orderclose.Order{ID: "3000", Due: now.Add(-5000 * time.Second)}
	for _, w := range []due.Window{{To: now, After: middle, Rows: 100}, {To: now, Before: middle, Newest: true, Rows: 100},
		{To: now.Add(-12000 * time.Second)}} {
		var found due.Found
		read := rowsRead(t, s, func() { found = must.Get(s.ReadOverdue(t.Context(), w))(t) })
		expect.That(t, len(found.Orders) == w.Rows && read <= 10*w.Rows+20, "%+v: %d orders were found in %d rows", w, len(found.Orders), read)
	}
}

func TestPostgres_AReadOfTheLoopEntersTheIndex(t *testing.T) { onPostgres(t, planOfARead) }

func planOfARead(t *testing.T) {
	s := openMigrated(t, store.Options{})
	exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT CONCAT(i), '', i % 3, now(), now() - make_interval(secs "+
		"=> i / 3), 1 FROM generate_series(1, 30000) AS i")
	now := must.Get(s.Now(t.Context()))(t)
	middle := orderclose.Order{ID: "300", Due: now.Add(-time.Hour)}
	for index, w := range map[string]due.Window{
		"Index Scan using orders_overdue":          {To: now, After: middle, Rows: 100},
		"Index Scan Backward using orders_overdue": {To: now, Before: middle, Newest: true, Rows: 100},
	} {
		query, args := s.ReadStatement(w)
		tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t) // the statistics are those of an empty table
		var plan strings.Builder
		rows := must.Get(tx.QueryContext(t.Context(), "EXPLAIN (ANALYZE) "+query, args...))(t)
		for rows.Next() {
			var line string
			must.Do(t, rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		must.Do(t, rows.Close())
		must.Do(t, tx.Rollback())
		_, scan, _ := strings.Cut(plan.String(), index)
		expect.That(t, strings.Contains(scan, "rows=100 ") && !strings.Contains(scan, "Removed by Filter"), "%s", plan.String())
		found := must.Get(s.ReadOverdue(t.Context(), w))(t)
		expect.That(t, len(found.Orders) == 100 && !found.All, "%d orders", len(found.Orders))
	}
}
