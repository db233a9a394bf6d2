package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// plainShop opens a database with the tables of spelling, with columns that may be NULL. Order 1 holds 1 ink and 2 pens.
func plainShop(t *testing.T) *store.Store {
	t.Helper()
	s := openShop(t, ownDatabase(t), storetest.Shop{Mapping: spelling},
		"CREATE TABLE o (no VARCHAR(20) PRIMARY KEY, status INT NOT NULL, due INT NULL)", "CREATE INDEX o_due ON o (status, due, no)",
		"CREATE TABLE l (no VARCHAR(20) NOT NULL, sku VARCHAR(20), n INT NULL)", "CREATE INDEX l_no ON l (no)",
		"CREATE TABLE g (sku VARCHAR(20) PRIMARY KEY, free INT NULL, held INT NULL)",
		"INSERT INTO g VALUES ('ink', 0, 100), ('pen', 7, 100)", "INSERT INTO o VALUES ('1', 0, 1), ('2', 0, 1)",
		"INSERT INTO l VALUES ('1', 'ink', 1), ('1', 'pen', 2), ('2', 'ink', 1)",
	)
	return s
}

// hasChecks asks whether MySQL enforces CHECK, as it does since 8.0.16.
const hasChecks = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'information_schema' AND table_name = 'CHECK_CONSTRAINTS'"

// Each order that cannot be closed has one cause, with the SKU, the column and the value. A look at the order finds the same cause.
func TestClose_AnOrderThatCannotBeClosedHasOneCause(t *testing.T) { eachDatabase(t, namedCauses) }

func namedCauses(t *testing.T) {
	s := plainShop(t)
	trigger := "CREATE TRIGGER keep BEFORE UPDATE ON o FOR EACH ROW BEGIN IF NEW.no = '1' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not " +
		"on Sundays'; END IF; END"
	drop := "DROP TRIGGER keep"
	check := "ALTER TABLE g ADD CONSTRAINT few CHECK (sku <> 'pen' OR free < 8)"
	if isPostgres(t) {
		exec(t, s.DB(), "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.no = '1' THEN RAISE EXCEPTION 'not on Sundays'; "+
			"END IF; RETURN NEW; END $$")
		trigger, drop = "CREATE TRIGGER keep BEFORE UPDATE ON o FOR EACH ROW EXECUTE FUNCTION keep()", "DROP TRIGGER keep ON o"
	}
	for _, c := range []struct {
		do, undo string
		cause    orderclose.FailureCause
		says     string
	}{
		{"DELETE FROM g WHERE sku = 'pen'", "INSERT INTO g VALUES ('pen', 7, 100)", orderclose.StockRowMissing, `SKU "pen" has no row in table g`},
		{"UPDATE g SET held = 1 WHERE sku = 'pen'", "UPDATE g SET held = 100", orderclose.ReservedTooLow, `held of SKU "pen" in table g is 1, and the order holds 2`},
		{"UPDATE g SET held = NULL WHERE sku = 'pen'", "UPDATE g SET held = 100", orderclose.ValueNull, `held of SKU "pen" in table g is NULL`},
		{"UPDATE g SET free = NULL WHERE sku = 'pen'", "UPDATE g SET free = 7", orderclose.ValueNull, `free of SKU "pen" in table g is NULL`},
		{"UPDATE g SET free = 2147483646 WHERE sku = 'pen'", "UPDATE g SET free = 7", orderclose.NumberOutOfRange,
			`free of SKU "pen" in table g is 2147483646, and 2 more do not fit into the column`},
		{"UPDATE l SET n = -2 WHERE sku = 'pen'", "UPDATE l SET n = 2 WHERE sku = 'pen'", orderclose.LinesWrong, `order "1" holds -2 of SKU "pen": fix its lines`},
		{"UPDATE l SET n = NULL WHERE sku = 'pen'", "UPDATE l SET n = 2 WHERE sku = 'pen'", orderclose.LinesWrong,
			`order "1" has a line of SKU "pen" whose quantity is NULL: fix its lines`},
		{"UPDATE o SET due = 0 WHERE no = '1'", "UPDATE o SET due = 1", orderclose.NoDueTime, "no due time in the database"},
		{"UPDATE o SET no = '3' WHERE no = '1'", "UPDATE o SET no = '1' WHERE no = '3'", orderclose.RowNotFound, `the database has no order "1"`},
		{trigger, drop, orderclose.RefusedByTrigger, "not on Sundays"},
		{check, "ALTER TABLE g DROP CONSTRAINT few", orderclose.RefusedByServer, "few"},
	} {
		if c.do == check && kindOf(t) == "mysql" && texts(t, s, hasChecks) == "0" {
			continue
		}
		exec(t, s.DB(), c.do)
		r := orderclose.CloseRequest{OrderID: "1"}
		out := must.Get(bisect.Bisect(t.Context(), s, orderclose.PathSweep, []orderclose.CloseRequest{r, {OrderID: "4"}}))(t)
		var look orderclose.Outcome
		storetest.Await(t, "a trial within its limit", func() (string, bool) {
			var err error
			look, err = s.WhyOpen(t.Context(), r, true)
			return fmt.Sprint(err), err == nil
		})
		for what, o := range map[string]orderclose.Outcome{"the close": out[0], "the look": look} {
			if cause, why := o.Why(); cause != c.cause || !strings.HasPrefix(why, string(c.cause)+": ") || !strings.Contains(why, c.says) {
				t.Errorf("%s, %s: %s %s, want %s: %s", c.do, what, cause, why, c.cause, c.says)
			}
		}
		exec(t, s.DB(), c.undo)
	}
	look, err := s.WhyOpen(t.Context(), orderclose.CloseRequest{OrderID: "1"}, true)
	expect.That(t, look.Verdict == "" && err == nil, "an order that can be closed: %v, %v", look, err)
	for query, says := range map[string]string{"o WHERE no = '1'": "the order's row", "g WHERE sku = 'pen'": `SKU "pen" in table g`} {
		tx := begin(t, s.DB(), "SELECT * FROM "+query+" FOR UPDATE")
		look, err = s.WhyOpen(t.Context(), orderclose.CloseRequest{OrderID: "1"}, says == "the order's row")
		cause, why := look.Why()
		expect.That(t, err == nil && cause == orderclose.Locked && strings.Contains(why, "another transaction locks "+says), "%s: %s, %v", query, why, err)
		must.Do(t, tx.Rollback())
	}
	must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "2"}}))(t)
	exec(t, s.DB(), "UPDATE o SET status = 0 WHERE no = '2'")
	out := must.Get(bisect.Bisect(t.Context(), s, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "2"}}))(t)
	cause, why := out[0].Why()
	expect.That(t, cause == orderclose.ClosedBefore, "an order that is opened again: %s", why)
}

// A server whose binary log takes no write of READ COMMITTED is named, and not the mapping or an order.
func TestMySQL_ABinaryLogOfStatementsIsNamed(t *testing.T) { eachServer(t, statementLog) }

func statementLog(t *testing.T) {
	s := plainShop(t)
	exec(t, s.DB(), "CREATE TRIGGER logged BEFORE INSERT ON receipts FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1665, MESSAGE_TEXT = "+
		"'Cannot execute statement'")
	_, trial := s.TryClose(t.Context())
	_, closed := s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "1"}})
	for what, err := range map[string]error{"a trial": trial, "a close": closed, "the check of doctor": s.Writable(t.Context())} {
		expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "binlog_format of the server is STATEMENT"), "%s: %v", what, err)
	}
	expect.That(t, errors.Is(closed, orderclose.ErrNoOrderAtFault), "an order is blamed: %v", closed)
}
