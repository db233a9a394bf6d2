package storetest

import (
	"database/sql"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Begin begins a transaction of a shop in the way of a library, on db or on the database of dsn. It returns the transaction,
// and end, which commits it or rolls it back.
type Begin func(t *testing.T, db *sql.DB, dsn string) (tx orderclose.Tx, end func(commit bool) error)

// Transactions tests that orders are added and payments are recorded in transactions of libraries, by name.
func Transactions(t *testing.T, server Server, begin map[string]Begin) {
	on := server.databases(t, nil, nil)
	for name, begin := range begin {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lentTransactions(t, on.shop(t, Dialect), begin)
		})
	}
}

// GormLeak is a goroutine that gorm leaves for each pool with prepared statements.
var GormLeak = goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1")

var transactionPromises = []promise[shop]{
	{name: "ATransactionOfTheShopIsLent", test: func(t *testing.T, s *shop) { lentTransactions(t, s, beginSQL) }, tags: Dialect},
	{name: "ATransactionOfGormIsLent", test: func(t *testing.T, s *shop) { lentTransactions(t, s, beginGorm(false)) }, tags: Dialect},
	{name: "ATransactionOfGormWithPreparedStatementsIsLent", test: func(t *testing.T, s *shop) { lentTransactions(t, s, beginGorm(true)) }, tags: Dialect},
}

func beginSQL(t *testing.T, db *sql.DB, _ string) (orderclose.Tx, func(bool) error) {
	tx := must.Get(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
	return orderclose.SQL(tx), func(commit bool) error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	}
}

func beginGorm(prepare bool) Begin {
	return func(t *testing.T, db *sql.DB, _ string) (orderclose.Tx, func(bool) error) {
		// gorm writes no statement here, so one dialect suffices for all databases.
		of := must.Get(gorm.Open(mysql.New(mysql.Config{Conn: db, SkipInitializeWithVersion: true}), &gorm.Config{PrepareStmt: prepare}))(t)
		tx := of.Begin(&sql.TxOptions{Isolation: sql.LevelReadCommitted})
		_, prepared := tx.Statement.ConnPool.(*gorm.PreparedStmtTX)
		must.That(t, tx.Error == nil && prepared == prepare, "%T, %v", tx.Statement.ConnPool, tx.Error)
		return orderclose.SQL(tx.Statement.ConnPool), func(commit bool) error {
			if commit {
				return tx.Commit().Error
			}
			return tx.Rollback().Error
		}
	}
}

// shopsPool returns a pool of the shop's own, with the settings that its driver has by default. On SQLite the shop has that of the store.
func (s *shop) shopsPool() *sql.DB {
	driver := map[store.DialectName]string{store.MySQL: "mysql", store.Postgres: "pgx"}[s.Dialect()]
	if driver == "" {
		return s.DB()
	}
	db := must.Get(sql.Open(driver, s.dsn))(s)
	s.Cleanup(func() {
		expect.NoError(s, db.Close())
	})
	return db
}

// lentTransactions: what is written in a transaction of the shop is there if and only if the transaction commits.
func lentTransactions(t *testing.T, s *shop, begin Begin) {
	s.migrated()
	db, x, now := s.shopsPool(), s.schedules(), s.now()
	s.overdueOrders("asked", "late", "open")
	s.close("late")
	must.Get(s.PayOrders(t.Context(), requests("asked")))(t)
	states := func() []string {
		return append(s.texts("SELECT CONCAT_WS(' ', id, status, version, COALESCE(payment_id, '-')) FROM orders ORDER BY id"),
			append(s.late(), s.texts("SELECT order_id FROM outbox_schedules")...)...)
	}
	before := states()
	record := func(tx orderclose.Tx, order, payment string) (callback.Recorded, error) {
		return callback.RecordPayment(t.Context(), s.Payments, tx, store.LatePayment{OrderID: order, PaymentID: payment, Amount: 1250, Currency: "EUR"})
	}
	for _, commit := range []bool{false, true} {
		tx, end := begin(t, db, s.dsn)
		for _, row := range []struct {
			order, payment string
			want           callback.Recorded
		}{
			{"asked", "p1", callback.RecordedAlready}, {"asked", "p1", callback.RecordedAlready}, {"asked", "p2", callback.RecordedLate},
			{"late", "p1", callback.RecordedLate}, {"late", "p1", callback.RecordedLate},
			{"open", "p1", callback.RecordedPaid}, {"open", "p1", callback.RecordedAlready},
		} {
			want(t, "payment "+row.payment+" of "+row.order, must.Get(record(tx, row.order, row.payment))(t), row.want)
		}
		s.must(x.Add(t.Context(), tx, orderclose.Order{ID: "new", CreatedAt: now, Due: now.Add(time.Hour), Attributes: map[string]any{"note": `it's "4" \ ?`}}))
		s.must(end(commit))
		if !commit {
			want(t, "rolled back", states(), before)
			want(t, "events that were rolled back", len(s.lateEvents()), 0)
		}
	}
	want(t, "committed", states(), []string{"asked 1 3 p1", "late 2 2 -", "open 1 2 p1",
		"asked p2 1250 EUR same_id ", "late p1 1250 EUR callback ", "new"})
	want(t, "events", len(s.lateEvents()), 2)
	for what, query := range map[string]string{"paid orders": "orders WHERE status = 1 AND paid_at", "late payments": "late_payments WHERE found_at"} {
		want(t, what+" whose time is right", s.count("SELECT COUNT(*) FROM "+query+" BETWEEN ? AND ?", s.time(now), s.time(s.now())), 2)
	}

	tx, end := begin(t, db, s.dsn)
	expect.Is(t, expect.Err(record(tx, "nobody's", "p1")), callback.ErrNoOrder, "a payment of an unknown order")
	s.must(end(false))
	expect.That(t, expect.Err(record(tx, "open", "p1")) != nil, "a payment is recorded in a transaction that has ended")
}
