package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Two tables of orders of a shop have a database each for their receipts. A callback begins its transaction on the shop's.
func TestRecordPayment_RefusesATransactionOnAnotherDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		first, second := open(t, store.Options{DSN: ownDatabase(t)}), open(t, store.Options{DSN: ownDatabase(t)})
		for _, s := range []*store.Store{first, second} {
			must.Do(t, s.Migrate(t.Context()))
			exec(t, s.DB(), "INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('17', 'closed', "+
				"'2026-11-20 12:00:00', '2026-11-20 12:00:00', 'sweep', 0, 0)")
		}
		record := func(of, on *store.Store) (callback.Recorded, error) {
			tx := must.Get(on.DB().BeginTx(t.Context(), nil))(t)
			defer func() { must.Do(t, tx.Commit()) }()
			return callback.RecordPayment(t.Context(), of.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: "17", PaymentID: "p"})
		}
		for range 2 { // where its receipts are is asked once
			_, err := record(second, first)
			must.That(t, err != nil && strings.Contains(err.Error(), "begin it on a connection to the database of the Store's DSN"), "on another database: %v", err)
		}
		got, err := record(second, second)
		must.That(t, err == nil && got == callback.RecordedLate, "on its own: %s, %v", got, err)
		var rows int
		must.Do(t, first.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM late_payments").Scan(&rows))
		must.That(t, rows == 0, "the other has %d late payments", rows)
	})
}

func TestRecordPayment_RefusesWhatIsNoTransaction(t *testing.T) {
	s := open(t, store.Options{DSN: "root@tcp(127.0.0.1:1)/shop"})
	for _, tx := range []orderclose.Tx{nil, orderclose.SQL(nil), orderclose.SQL(s.DB()), orderclose.SQL(&gorm.PreparedStmtDB{ConnPool: s.DB()}),
		orderclose.SQL(&sql.Conn{}), orderclose.SQL(struct{ *sql.Conn }{})} {
		_, err := callback.RecordPayment(t.Context(), s.Payments, tx, store.LatePayment{OrderID: "a", PaymentID: "p1"})
		expect.That(t, err != nil && strings.Contains(err.Error(), "begin") && !errors.Is(store.Classify(err), orderclose.ErrUnavailable), "%T: %v", tx, err)
	}
}

func TestRecordPayment_AnIDThatNoOrderCanHaveIsNotAskedFor(t *testing.T) {
	s := open(t, store.Options{DSN: "root@tcp(127.0.0.1:1)/shop"})
	for _, id := range []string{"", " a", "a\x00b", "a\xffb", strings.Repeat("a", orderclose.MaxIDBytes+1)} {
		_, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL((*sql.Tx)(nil)), store.LatePayment{OrderID: id, PaymentID: "p1"})
		expect.That(t, errors.Is(err, callback.ErrNoOrder), "%q: %v", id, err)
	}
}

// A transaction of the shop has read at REPEATABLE READ, the default of MySQL and MariaDB, before others commit what decides about its payment. It sees
// that, or it loses: MariaDB 11.6 and newer refuse to change what others have changed since.
func TestRecordPayment_SeesWhatOthersCommitAtRepeatableRead(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		closeIt := func(id string) {
			out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: id}}))(t)
			must.That(t, out[0].Verdict == orderclose.Closed, "%s: %s", id, out[0].Verdict)
		}
		for id, row := range map[string]struct {
			before string
			others func()
		}{
			"same id":  {"UPDATE orders SET payment_id = 'p1' WHERE id = 'same id'", func() { closeIt("same id") }},
			"archived": {"", func() { closeIt("archived"); exec(t, s.DB(), "DELETE FROM orders WHERE id = 'archived'") }},
			"reopened": {"UPDATE orders SET status = 1 WHERE id = 'reopened'", func() {
				exec(t, s.DB(), "INSERT INTO late_payments (order_id, payment_id, source, found_at, resolved_at, resolution) "+
					"VALUES ('reopened', 'p2', 'callback', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 'reopened')")
			}},
		} {
			overdue(t, s, id)
			if row.before != "" {
				exec(t, s.DB(), row.before)
			}
			tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
			must.Do(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(new(int)))
			row.others()
			payment := store.LatePayment{OrderID: id, PaymentID: "p1", Amount: 5, Currency: "EUR"}
			got, err := callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), payment)
			if snapshotIsolation(t, s.DB()) { // the transaction has to be repeated
				expect.That(t, errors.Is(store.Classify(err), orderclose.ErrContended), "%s: %q, %v, want ErrContended", id, got, err)
				must.Do(t, tx.Rollback())
				tx = must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
				got, err = callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), payment)
			}
			expect.That(t, err == nil && got == callback.RecordedLate, "%s: %q, %v; want %q", id, got, err, callback.RecordedLate)
			must.Do(t, tx.Commit())
		}
		if got := texts(t, s, "SELECT order_id FROM late_payments WHERE payment_id = 'p1' ORDER BY order_id"); got != "archived, reopened, same id" {
			t.Errorf("late payments of %s", got)
		}
	})
}

// A shop in another language runs the statements of docs/wire.md. They do what RecordPayment does.
func TestRecordPayment_IsWhatTheDocumentedStatementsDo(t *testing.T) {
	eachDatabase(t, documentedStatements)
}

func documentedStatements(t *testing.T) {
	postgres := isPostgres(t)
	text := must.Get(os.ReadFile("../../docs/wire.md"))(t)
	run := strings.Split(strings.TrimSuffix(block(t, string(text), "sql payment"), ";\n"), ";\n")
	must.That(t, len(run) == 8, "docs/wire.md has %d statements of a payment", len(run))
	age := "ABS(TIMESTAMPDIFF(SECOND, found_at, UTC_TIMESTAMP()))"
	if postgres {
		age = "ABS(EXTRACT(EPOCH FROM found_at - now()))"
		for i := range run {
			run[i] = forPostgres(t, string(text), run[i])
		}
	}
	var states [2][]string
	for i, record := range []func(*store.Store, *sql.Tx, store.LatePayment) (callback.Recorded, error){
		func(s *store.Store, tx *sql.Tx, p store.LatePayment) (callback.Recorded, error) {
			return callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), p)
		},
		func(_ *store.Store, tx *sql.Tx, p store.LatePayment) (callback.Recorded, error) {
			return byTheDocument(t.Context(), run, tx, p)
		},
	} {
		s := openMigrated(t, store.Options{})
		overdue(t, s, "open", "asked", "closed", "unnamed", "resolved", "early", "refunded", "archived", "reopened", "back", "gone", "sent",
			"delivered", "unknown", "back2")
		exec(t, s.DB(), "UPDATE orders SET payment_id = 'p1' WHERE id = 'early'")
		must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "closed"}, {OrderID: "unnamed"}, {OrderID: "resolved"},
			{OrderID: "early"}, {OrderID: "archived"}, {OrderID: "reopened"}, {OrderID: "delivered"}, {OrderID: "unknown"}}))(t)
		must.Get(s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: "asked"}, {OrderID: "back"}, {OrderID: "gone"}, {OrderID: "sent"},
			{OrderID: "back2"}}))(t)
		exec(t, s.DB(), "UPDATE orders SET status = 3 WHERE id = 'back'") // refunded at the provider, and cancelled
		exec(t, s.DB(), "UPDATE orders SET status = 4 WHERE id = 'sent'")
		exec(t, s.DB(), "UPDATE orders SET status = 0 WHERE id = 'back2'") // set back, and paid by another payment
		exec(t, s.DB(), "DELETE FROM orders WHERE id = 'gone'")
		must.Get(s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "unnamed", Source: store.SourceRecheck},
			{OrderID: "resolved", Source: store.SourceRecheck}, {OrderID: "delivered", Source: store.SourceRecheck},
			{OrderID: "unknown", Source: store.SourceRecheck}}))(t)
		exec(t, s.DB(), "UPDATE late_payments SET resolved_at = found_at, resolution = 'reopened' WHERE order_id IN ('delivered', 'unknown')")
		exec(t, s.DB(), "UPDATE orders SET status = 1 WHERE id = 'unknown'")
		exec(t, s.DB(), "UPDATE late_payments SET resolved_at = found_at, resolution = 'refunded' WHERE order_id = 'resolved'")
		exec(t, s.DB(), "DELETE FROM orders WHERE id = 'archived'")
		exec(t, s.DB(), "INSERT INTO late_payments (order_id, payment_id, source, found_at, resolved_at, resolution) SELECT order_id, 'p1', 'callback', closed_at, "+
			"closed_at, 'reopened' FROM receipts WHERE order_id = 'reopened'")
		exec(t, s.DB(), "INSERT INTO late_payments (order_id, payment_id, source, found_at) SELECT order_id, 'p3', 'callback', closed_at FROM receipts "+
			"WHERE order_id = 'reopened'")
		exec(t, s.DB(), "UPDATE orders SET status = 1 WHERE id = 'reopened'")
		for _, p := range []string{"open p1", "open p1", "open p2", "open p2", "asked p1", "asked p1", "asked p2", "closed p1", "closed p1", "closed p2",
			"unnamed p1", "unnamed p2", "resolved p1", "resolved p1", "resolved p2", "nobody's p1",
			"early p1", "early p1", "early p2", "refunded p1", "refunded p1", "refunded p2",
			"archived p1", "archived p1", "back p1", "back p1", "back p2", "gone p1", "sent p1", "sent p2", "reopened p2", "reopened p3", "reopened p1", "reopened p1",
			"delivered p1", "delivered p1", "unknown p1", "unknown p1", "back2 p2", "back2 p1", "back2 p1"} {
			order, id, _ := strings.Cut(p, " ")
			if len(states[i]) > 0 && strings.HasPrefix(states[i][len(states[i])-1], "refunded p1: \"paid\"") {
				exec(t, s.DB(), "UPDATE orders SET status = 3 WHERE id = 'refunded'") // the shop has refunded and cancelled it
			}
			tx := must.Get(s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
			r, err := record(s, tx, store.LatePayment{OrderID: order, PaymentID: id, Amount: 1250, Currency: "EUR"})
			if err == nil {
				must.Do(t, tx.Commit())
			} else {
				must.Do(t, tx.Rollback())
			}
			states[i] = append(states[i], fmt.Sprintf("%s: %q %v", p, r, errors.Is(err, callback.ErrNoOrder)))
		}
		states[i] = append(states[i], texts(t, s, "SELECT CONCAT_WS(' ', id, status, version, paid_at IS NULL, payment_id) FROM orders ORDER BY id"))
		states[i] = append(states[i], texts(t, s, "SELECT CONCAT_WS(' ', order_id, payment_id, amount, currency, source, "+age+
			" < 3600) FROM late_payments ORDER BY id"))
		for payload := range strings.SplitSeq(texts(t, s, "SELECT CONCAT(payload, '\n') FROM outbox_events WHERE payload LIKE '%paid_late%'"), "\n, ") {
			var e map[string]any
			must.Do(t, json.Unmarshal([]byte(payload), &e))
			data := e["data"].(map[string]any)
			at, err := time.Parse(time.RFC3339, data["found_at"].(string))
			age := time.Since(at).Abs()
			expect.That(t, err == nil && age <= time.Hour && e["time"] == data["found_at"], "event %s is %v old, %v", payload, age, err)
			delete(data, "found_at")
			delete(e, "time")
			states[i] = append(states[i], fmt.Sprint(e))
		}
	}
	expect.Same(t, states[1], states[0], "RecordPayment and docs/wire.md")
}

// forPostgres changes a statement of docs/wire.md as the document says.
func forPostgres(t *testing.T, document, statement string) string {
	t.Helper()
	for _, change := range [][2]string{
		{"DATE_FORMAT(UTC_TIMESTAMP(3), '%Y-%m-%dT%H:%i:%s.%fZ')", `to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`},
		{"UTC_TIMESTAMP(3)", "statement_timestamp()"},
	} {
		expect.That(t, strings.Contains(document, change[1]), "docs/wire.md does not say %s", change[1])
		statement = strings.ReplaceAll(statement, change[0], change[1])
	}
	for n := 1; strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", fmt.Sprintf("$%d", n), 1)
	}
	return statement
}

// byTheDocument records a payment as docs/wire.md says.
func byTheDocument(ctx context.Context, run []string, tx *sql.Tx, p store.LatePayment) (callback.Recorded, error) {
	exec := func(n int, args ...any) int64 {
		result, err := tx.ExecContext(ctx, run[n-1], args...)
		if err != nil {
			panic(err)
		}
		changed, _ := result.RowsAffected()
		return changed
	}
	var status, receipts, asked int
	var paidBy sql.NullString
	var now string
	archived := false
	if err := tx.QueryRowContext(ctx, run[0], p.OrderID).Scan(&status, &paidBy); errors.Is(err, sql.ErrNoRows) {
		archived = true
	} else if err != nil {
		return "", err
	}
	// known is the resolution of this payment's row, or "no"; all is how many rows the order has, nameless: one of them has no id.
	known, all, nameless, source := "", 0, false, store.SourceCallback
	read := func() error {
		if err := tx.QueryRowContext(ctx, run[3], p.OrderID, p.OrderID).Scan(&receipts, &now, &asked); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, run[4], p.OrderID)
		if err != nil {
			return err
		}
		defer rows.Close()
		for known = "no"; rows.Next(); {
			var id, resolution string
			if err := rows.Scan(&id, &resolution); err != nil {
				return err
			}
			if id == p.PaymentID {
				known = resolution
			}
			all, nameless = all+1, nameless || id == ""
		}
		return rows.Err()
	}
	paid := status == 1 || status == 4 || status == 5
	if !archived && status == 0 {
		exec(2, p.PaymentID, p.OrderID)
		return callback.RecordedPaid, nil
	}
	if paid && paidBy.String == p.PaymentID {
		return callback.RecordedAlready, nil
	}
	if err := read(); err != nil {
		return "", err
	}
	switch {
	case archived && receipts+asked == 0:
		return "", callback.ErrNoOrder
	case paidBy.String == p.PaymentID && receipts == 0:
		return callback.RecordedAlready, nil
	case paidBy.String == p.PaymentID:
		source = store.SourceSameID
	case paid && !paidBy.Valid && (all == 0 || known == "reopened"):
		exec(3, p.PaymentID, p.OrderID)
		return callback.RecordedAlready, nil
	}
	if asked > 0 || nameless || paid && !paidBy.Valid {
		source = store.SourceSameID
	}
	if known != "no" {
		exec(6, p.Amount, p.Currency, p.OrderID, p.PaymentID)
		return callback.RecordedLate, nil
	}
	exec(7, p.OrderID, p.PaymentID, p.Amount, p.Currency, source)
	exec(8, p.OrderID,
		fmt.Sprintf(`{"specversion":"1.0","id":"order.paid_late/%d:%s/%s","source":"/orderclose","type":"order.paid_late","subject":"%[2]s","time":"%[4]s",`+
			`"datacontenttype":"application/json","data":{"order_id":"%[2]s","payment_id":"%[3]s","amount":%[5]d,"currency":"%[6]s",`+
			`"source":"%[7]s","found_at":"%[4]s"}}`,
			len(p.OrderID), p.OrderID, p.PaymentID, now, p.Amount, p.Currency, source))
	return callback.RecordedLate, nil
}
