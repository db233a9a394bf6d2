package store_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// An open transaction has read receipts, as that of a backup or of a callback. A further step changes the table, and waits for the
// transaction. Orders close meanwhile.
func TestMigrate_NobodyWaitsForLongBehindAStep(t *testing.T) { eachDatabase(t, migrateBesideAReader) }

func migrateBesideAReader(t *testing.T) {
	dsn := ownDatabase(t)
	must.Do(t, open(t, store.Options{DSN: dsn}).Migrate(t.Context()))
	s, newer := openMigrated(t, store.Options{DSN: dsn}), open(t, store.Options{DSN: dsn})
	const step = "ALTER TABLE receipts ADD COLUMN note VARCHAR(9) NULL;\n"
	newer.Migrations = storetest.WithSteps(map[string]string{"mysql/9001.sql": step, "postgres/9001.sql": step})
	overdue(t, s, "a")
	reader := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
	must.Do(t, reader.QueryRow("SELECT COUNT(*) FROM receipts").Scan(new(int)))
	migrated := make(chan error)
	go func() { migrated <- newer.Migrate(t.Context()) }()
	waits := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'"
	if isPostgres(t) {
		waits = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'receipts'::regclass"
	}
	storetest.Await(t, "the step waits for the reader", func() (string, bool) { got := texts(t, s, waits); return got, got != "0" })
	storetest.Await(t, "the step has let others pass", func() (string, bool) { got := texts(t, s, waits); return got, got == "0" })
	storetest.Await(t, "the step waits for the reader", func() (string, bool) { got := texts(t, s, waits); return got, got != "0" })
	storetest.Await(t, "a close beside the step", func() (string, bool) { // one that meets the step too often is tried again
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		return fmt.Sprint(out, err), err == nil && out[0].Verdict == orderclose.Closed
	})
	must.Do(t, reader.Rollback())
	must.Do(t, <-migrated)
	must.That(t, texts(t, s, "SELECT COUNT(note) FROM receipts") == "0", "the table has no new column")
}
