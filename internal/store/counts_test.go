package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// hiddenShop returns a mapping of the table that openHidden creates.
func hiddenShop(where ...mapping.Condition) *mapping.Mapping {
	return &mapping.Mapping{
		Orders: "t_order", ID: mapping.Key{Column: "id", Type: mapping.Integer},
		Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.IntValue(0)}, To: mapping.IntValue(2), Paid: []mapping.Value{mapping.IntValue(1)}},
		Due:    mapping.TimeColumn{Column: "pay_deadline", Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds},
		Where:  where,
	}
}

// openHidden creates a table with three overdue orders, two that are due in half an hour and in an hour, one
// without a due time, and two closed ones. The overdue orders have the tenant Main.
func openHidden(t *testing.T, dsn string) *store.Store {
	t.Helper()
	s := open(t, store.Options{DSN: dsn, Orders: hiddenShop()})
	exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, state INT NOT NULL, pay_deadline DATETIME NULL, tenant VARCHAR(9) COLLATE "+
		"utf8mb4_bin NOT NULL DEFAULT 'Main', update_time DATETIME NULL, KEY k (state, pay_deadline)) ENGINE=InnoDB")
	for _, row := range []string{"0, -10", "0, -20", "0, -2000", "0, 30", "0, 60", "0, NULL", "2, -90", "2, 5"} {
		exec(t, s.DB(), "INSERT INTO t_order (state, pay_deadline) SELECT a, UTC_TIMESTAMP() + INTERVAL 8 HOUR + INTERVAL b MINUTE FROM (SELECT "+
			strings.Replace(row, ",", " AS a,", 1)+" AS b) AS r")
	}
	must.Do(t, s.Migrate(t.Context()))
	return s
}

func TestMySQL_CountOrders(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		farthest := texts(t, openHidden(t, dsn), "SELECT CAST(MAX(pay_deadline) - INTERVAL 8 HOUR AS CHAR) FROM t_order WHERE state = 0")
		for _, c := range []struct {
			where []mapping.Condition
			first time.Duration // Mapping.NotBefore, from now
			want  store.OrderCounts
		}{
			{nil, 0, store.OrderCounts{From: 6, To: 2, Overdue: 3, Waiting: 2, Never: 1}},
			{nil, -time.Hour, store.OrderCounts{From: 6, To: 2, Overdue: 2, Waiting: 2, Excluded: 1, Never: 1}},
			{[]mapping.Condition{mapping.Is("tenant", mapping.TextValue("main"))}, 0, store.OrderCounts{From: 6, To: 2, Excluded: 5, Never: 1}},
		} {
			m := hiddenShop(c.where...)
			if c.first != 0 {
				m.NotBefore = time.Now().Add(c.first).Truncate(time.Second)
			}
			got := must.Get(open(t, store.Options{DSN: dsn, Orders: m}).CountOrders(t.Context()))(t)
			expect.That(t, c.want.Waiting <= 0 || got.Farthest.UTC().Format(time.DateTime) == farthest,
				"the farthest is due at %v, want %v", got.Farthest, farthest)
			if got.At, got.Oldest, got.Farthest = (time.Time{}), (time.Time{}), (time.Time{}); got != c.want {
				t.Errorf("%+v: %+v, want %+v", c, got, c.want)
			}
		}
	})
}

// Each unpaid order is in one number, whatever type of column its due time has, and of whatever type the value is: seconds in a column of
// milliseconds, a time beyond what the type can be, NULL, 0.
func TestCountOrders_EachUnpaidOrderIsInOneNumber(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		const never = -1 << 62 // a value in place of the seconds from now
		numbers := func(unit int64) (values map[any]int64) {
			values = map[any]int64{nil: never, int64(0): never, int64(-1): never, int64(1<<63 - 1): never}
			for _, from := range []int64{1, 1_000, 1_000_000} {
				for _, in := range []int64{-86400, -60, 60, 86400} {
					value := (time.Now().Unix() + in) * from
					values[value] = value/unit - time.Now().Unix()
					if value/unit > 250_000_000_000 { // the year 9892
						values[value] = never
					}
				}
			}
			return values
		}
		texts := map[any]int64{nil: never, "9999-12-31 23:59:59": never, "1971-01-01 00:00:00": -1, "2037-01-01 00:00:00": 1}
		zero := map[any]int64{"0000-00-00 00:00:00": never}
		if isPostgres(t) {
			zero = map[any]int64{"infinity": never, "-infinity": never}
		}
		datetime, stamp := "DATETIME", "TIMESTAMP"
		if isPostgres(t) {
			datetime, stamp = "TIMESTAMP(0)", "TIMESTAMPTZ"
		}
		for _, c := range []struct {
			due    mapping.TimeColumn
			sql    string
			values []map[any]int64
		}{
			{mapping.TimeColumn{Type: mapping.UnixSeconds}, "BIGINT", []map[any]int64{numbers(1)}},
			{mapping.TimeColumn{Type: mapping.UnixMillis}, "BIGINT", []map[any]int64{numbers(1000)}},
			{mapping.TimeColumn{Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds}, datetime, []map[any]int64{texts, zero}},
			{mapping.TimeColumn{Type: mapping.TimeType(strings.ToLower(stamp)), Precision: mapping.Seconds}, stamp + "(0)",
				[]map[any]int64{{nil: never, "1971-01-01 00:00:00": -1, "2037-01-01 00:00:00": 1}, zero}},
		} {
			dsn := ownDatabase(t)
			m := hiddenShop()
			c.due.Column = "pay_deadline"
			m.Due = c.due
			s := open(t, store.Options{DSN: dsn, Orders: m})
			exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, pay_deadline "+c.sql+" NULL, tenant VARCHAR(9) NOT NULL)")
			exec(t, s.DB(), "CREATE INDEX k ON t_order (state, pay_deadline)")
			must.Do(t, s.Migrate(t.Context()))
			var want store.OrderCounts
			for _, values := range c.values {
				for value, in := range values {
					for _, tenant := range []string{"Main", "other"} {
						want.From++
						literal := "NULL"
						if value != nil {
							literal = fmt.Sprintf("'%v'", value)
						}
						exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, pay_deadline, tenant) VALUES (%d, 0, %s, '%s')", want.From, literal, tenant))
						switch {
						case in == never:
							want.Never++
						case tenant == "other":
							want.Excluded++
						case in <= 0:
							want.Overdue++
						default:
							want.Waiting++
						}
					}
				}
			}
			m.Where = []mapping.Condition{mapping.Is("tenant", mapping.TextValue("Main"))}
			got := must.Get(open(t, store.Options{DSN: dsn, Orders: m}).CountOrders(t.Context()))(t)
			got.At, got.Oldest, got.Farthest, got.Before2000 = time.Time{}, time.Time{}, time.Time{}, 0
			expect.Equal(t, got, want, "%s as %s", c.sql, c.due.Type)
		}
	})
}

// The server's counters report how many rows a count read. Orders that the mapping excludes stay overdue for ever, and there may be millions.
func TestMySQL_OverdueNowReadsAThousandRows(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		admin := openHidden(t, dsn)
		m := hiddenShop(mapping.Is("tenant", mapping.TextValue("Main")))
		m.DueIndex = "k" // most of this small table is overdue
		s := open(t, store.Options{DSN: dsn, MaxOpenConns: 1, Orders: m})
		reads := func() (orders []orderclose.Order, more bool, rows int) {
			rows = rowsRead(t, s, func() {
				var err error
				orders, _, more, err = s.OverdueNow(t.Context(), 5*time.Second)
				must.Do(t, err)
			})
			return orders, more, rows
		}
		reads() // the first also reads what the first migrate decided
		orders, more, rows := reads()
		expect.That(t, len(orders) == 3 && !more && rows <= 3+10, "%d rows were read, and found %+v, %v", rows, orders, more)
		exec(t, admin.DB(), "INSERT INTO t_order (state, pay_deadline, tenant)"+
			" SELECT 0, UTC_TIMESTAMP() + INTERVAL 8 HOUR - INTERVAL 99 + seq MINUTE, 'x' FROM "+numbers(1296))
		exec(t, admin.DB(), "UPDATE t_order SET pay_deadline = '2020-01-01' WHERE tenant = 'x' AND id % 2")
		orders, more, rows = reads()
		expect.That(t, len(orders) == 2 && more && rows <= 1000+20,
			"%d rows were read of 1,296 that are excluded and three others, and found %+v, %v", rows, orders, more)
	})
}

// A shop may have a flag in place of a status: its paid orders have the status of unpaid ones, and orders.where excludes them.
func TestEvidence_IsOfOrdersThatAreNotExcluded(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		m := hiddenShop()
		m.Due = mapping.TimeColumn{Column: "due", Type: mapping.UnixSeconds}
		s := open(t, store.Options{DSN: dsn, Orders: m})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT PRIMARY KEY, state INT NOT NULL, due BIGINT NULL, paid INT NOT NULL, pay_time BIGINT NULL)")
		exec(t, s.DB(), "CREATE INDEX k ON t_order (state, due)")
		must.Do(t, s.Migrate(t.Context()))
		for i := range 300 {
			paid := min(i%100, 1) // one in a hundred is unpaid
			exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, due, paid, pay_time) VALUES (%d, 0, %d, %d, %d)", i+1, i+1, paid, 1000*paid))
		}
		for _, c := range []struct {
			where []mapping.Condition
			want  store.PaidSample
		}{{nil, store.PaidSample{Orders: 100, Paid: 99}}, {[]mapping.Condition{mapping.Is("paid", mapping.IntValue(0))}, store.PaidSample{Orders: 3}}} {
			m.Where = c.where
			e := must.Get(open(t, store.Options{DSN: dsn, Orders: m}).Evidence(t.Context()))(t)
			expect.That(t, e.PaidColumn == "pay_time" && e.FromSample == c.want, "where %v: %+v", c.where, e)
		}
	})
}

// hintsOf returns the hints on a mapping.
func hintsOf(t *testing.T, dsn string, m *mapping.Mapping) string {
	t.Helper()
	return strings.Join(must.Get(open(t, store.Options{DSN: dsn, Orders: m}).MappingHints(t.Context()))(t), "; ")
}

func TestMySQL_HintsSayThatEveryOrderIsExcluded(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		admin := openHidden(t, dsn)
		const excluded = "orders.where or orders.not_before excludes every unpaid order"
		for tenant, want := range map[string]bool{"Main": false, "main": true} {
			got := hintsOf(t, dsn, hiddenShop(mapping.Is("tenant", mapping.TextValue(tenant))))
			expect.That(t, strings.Contains(got, excluded) == want, "where tenant = %s: %s", tenant, got)
		}
		exec(t, admin.DB(), "DELETE FROM t_order WHERE state = 0")
		got := hintsOf(t, dsn, hiddenShop(mapping.Is("tenant", mapping.TextValue("main"))))
		expect.That(t, !strings.Contains(got, excluded), "without unpaid orders: %s", got)
	})
}

func TestMySQL_ANotBeforeInTheFutureIsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		openHidden(t, dsn)
		m := hiddenShop()
		m.NotBefore = time.Date(2126, 11, 20, 0, 0, 0, 0, time.UTC)
		wrong, ok := errors.AsType[*store.MappingError](open(t, store.Options{DSN: dsn, Orders: m}).CheckMapping(t.Context()))
		if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Path != "not_before" || !strings.HasSuffix(wrong.Error(), "or add future_not_before to accept") {
			t.Errorf("%v", wrong)
		}
		m.Accept = []string{mapping.FutureNotBefore}
		must.Do(t, open(t, store.Options{DSN: dsn, Orders: m}).CheckMapping(t.Context()))
	})
}

// A column that the shop may compare before it writes a row should be changed by a close.
func TestMySQL_HintsNameAnOptimisticLockThatNoCloseChanges(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		openHidden(t, dsn)
		updated := &mapping.TimeColumn{Column: "update_time", Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds}
		for name, change := range map[string]func(m *mapping.Mapping){
			"neither": func(*mapping.Mapping) {}, "closed_at": func(m *mapping.Mapping) {
				m.ClosedAt = []*mapping.TimeColumn{updated}
			}, "lock": func(m *mapping.Mapping) { m.Lock = updated },
		} {
			m := hiddenShop()
			change(m)
			notes := hintsOf(t, dsn, m)
			said := strings.Contains(notes, "not every close changes the column update_time")
			expect.That(t, said == (name != "lock"), "%s: %q", name, notes)
		}
	})
}

// MySQL 9.7 and newer can fire the triggers of tables whose rows a foreign key changes. A close changes the status, and no key.
func TestMySQL_TriggersOfCascadesAreNamed(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		s := openHidden(t, dsn)
		var name, value string
		has := s.DB().QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'enable_cascade_triggers'").Scan(&name, &value) == nil
		for _, statement := range []string{
			"ALTER TABLE t_order ADD UNIQUE KEY both_columns (id, state)",
			"CREATE TABLE copies (id BIGINT, state INT, FOREIGN KEY (id, state) REFERENCES t_order (id, state) ON UPDATE CASCADE)",
			"CREATE TABLE parcels (id BIGINT, FOREIGN KEY (id) REFERENCES t_order (id) ON UPDATE CASCADE)",
			"CREATE TRIGGER copied BEFORE UPDATE ON copies FOR EACH ROW SET NEW.id = NEW.id",
			"CREATE TRIGGER sent BEFORE UPDATE ON parcels FOR EACH ROW SET NEW.id = NEW.id",
		} {
			exec(t, s.DB(), statement)
		}
		for _, on := range []bool{false, has} {
			with := must.Get(mysql.ParseDSN(dsn))(t)
			if on {
				with.Params = map[string]string{"enable_cascade_triggers": "1"}
			}
			got := hintsOf(t, with.FormatDSN(), hiddenShop())
			expect.That(t, strings.Contains(got, "the triggers of table t_order: copied;") == on && !strings.Contains(got, "sent"), "on %v: %s", on, got)
		}
	})
}

// The servers show triggers only to a user with the privilege TRIGGER, MariaDB also to one with UPDATE.
func TestMySQL_TriggersThatCannotBeReadAreSaidToBeUnread(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		admin := openHidden(t, dsn)
		exec(t, admin.DB(), "CREATE TRIGGER gives_back BEFORE UPDATE ON t_order FOR EACH ROW SET NEW.tenant = 'x'")
		own, change := newUser(t, admin, dsn)
		change("GRANT", "SELECT ON t_order")
		change("GRANT", "SELECT ON orderclose_schema")
		hints := func() string { return hintsOf(t, own, hiddenShop()) }
		const unread, fires = "the triggers of t_order could not be read", "each close fires the triggers of table t_order: gives_back"
		if got := hints(); !strings.Contains(got, unread) || strings.Contains(got, fires) {
			t.Errorf("without the privilege: %s", got)
		}
		for _, grant := range []string{"t_order", "*"} {
			change("GRANT", "TRIGGER ON "+grant)
			got := hints()
			expect.That(t, !strings.Contains(got, unread) && strings.Contains(got, fires), "with TRIGGER on %s: %s", grant, got)
			exec(t, admin.DB(), "DROP TRIGGER IF EXISTS gives_back")
			got = hints()
			expect.That(t, !strings.Contains(got, unread), "without a trigger, with TRIGGER on %s: %s", grant, got)
			exec(t, admin.DB(), "CREATE TRIGGER gives_back BEFORE UPDATE ON t_order FOR EACH ROW SET NEW.tenant = 'x'")
			change("REVOKE", "TRIGGER ON "+grant)
		}
	})
}
