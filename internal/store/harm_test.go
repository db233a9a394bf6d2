package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The definitions that each database reports are enough to refuse a harmful mapping.
func TestMySQL_AHarmfulMappingIsRefused(t *testing.T) { eachServer(t, harmIsRefused) }

func harmIsRefused(t *testing.T) {
	dsn := ownDatabase(t)
	shop := examples(t)[0].Mapping
	admin := open(t, store.Options{DSN: dsn})
	for _, ddl := range []string{
		"CREATE TABLE users (id INT PRIMARY KEY) ENGINE = InnoDB",
		`CREATE TABLE t_order (
			id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, kind VARCHAR(20) NULL, state VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL,
			create_time DATETIME NOT NULL, pay_deadline DATETIME NULL, finish_time DATETIME NULL,
			placed DATETIME NULL DEFAULT CURRENT_TIMESTAMP, touched TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
			shut DATETIME AS (finish_time) STORED, late DATETIME AS (pay_deadline + INTERVAL 1 HOUR) VIRTUAL,
			zoned DATETIME AS (placed_utc + INTERVAL 1 HOUR) VIRTUAL, placed_utc TIMESTAMP NULL DEFAULT NULL,
			zoned_too DATETIME AS (zoned + INTERVAL 1 HOUR) VIRTUAL, day DATE NULL, dated TIMESTAMP AS (day + INTERVAL 1 HOUR) VIRTUAL,
			moved TIMESTAMP AS (touched + INTERVAL 1 HOUR) VIRTUAL, parsed TIMESTAMP AS (STR_TO_DATE(note, '%Y-%m-%d')) VIRTUAL,
			user_id INT NOT NULL, note VARCHAR(9) NULL, revision INT NOT NULL DEFAULT 0, no_in_shop INT NULL UNIQUE,
			KEY idx_state_deadline (state, pay_deadline), KEY part (state(4), pay_deadline), KEY z (state, zoned), KEY z2 (state, zoned_too),
			KEY z3 (state, dated), KEY z4 (state, moved), KEY z5 (state, parsed),
			CONSTRAINT bought FOREIGN KEY (user_id) REFERENCES users (id)) ENGINE = InnoDB`,
		"CREATE TABLE t_order_line (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, order_id BIGINT UNSIGNED NOT NULL, goods_id INT NOT NULL, num INT NOT NULL, KEY " +
			"idx_order (order_id)) ENGINE = InnoDB",
		"CREATE TABLE t_goods_stock (goods_id INT NOT NULL PRIMARY KEY, id INT NOT NULL AUTO_INCREMENT UNIQUE, price DECIMAL(9,2) NOT NULL, total INT AS (free + " +
			"held) STORED, free INT NOT NULL, held INT NOT NULL) ENGINE = InnoDB",
		"CREATE VIEW v_order AS SELECT * FROM t_order",
		"CREATE TRIGGER t_order_touch BEFORE UPDATE ON t_order FOR EACH ROW SET NEW.note = 'x'",
	} {
		exec(t, admin.DB(), ddl)
	}
	moment := func(column string) *mapping.TimeColumn {
		return &mapping.TimeColumn{Column: column, Type: mapping.DateTime, Zone: "UTC", Precision: mapping.Seconds}
	}
	closed := func(at ...*mapping.TimeColumn) []*mapping.TimeColumn { return at }
	stamp := &mapping.TimeColumn{Column: "touched", Type: mapping.Timestamp, Precision: mapping.Seconds}
	for _, c := range []struct {
		change func(m *mapping.Mapping)
		want   string // path: a part of Problem.What; empty: no problem
	}{
		{func(*mapping.Mapping) {}, ""},
		{func(m *mapping.Mapping) { m.Version = "revision" }, ""},
		{func(m *mapping.Mapping) { m.Due.Column, m.DueIndex = "late", "" }, "due.index: no index on state, late and id"},
		{func(m *mapping.Mapping) { m.Due.Column, m.DueIndex = "zoned", "z" }, "due.column: t_order.zoned is generated from the TIMESTAMP column placed_utc"},
		{func(m *mapping.Mapping) { m.Due.Column, m.DueIndex = "zoned_too", "z2" }, "due.column: t_order.zoned_too is generated from the TIMESTAMP column placed"},
		{func(m *mapping.Mapping) { m.Due, m.DueIndex = *stamp, "z3"; m.Due.Column = "dated" }, "due.column: t_order.dated is generated from the DATE column day"},
		{func(m *mapping.Mapping) { m.Due, m.DueIndex = *stamp, "z4"; m.Due.Column = "moved" }, "due.column: t_order.moved is set to the present moment"},
		{func(m *mapping.Mapping) { m.Due, m.DueIndex = *stamp, "z5"; m.Due.Column = "parsed" }, "due.column: t_order.parsed is generated from STR_TO_DATE"},
		{func(m *mapping.Mapping) {
			m.Lock = &mapping.TimeColumn{Column: "touched", Type: mapping.Timestamp, Precision: mapping.Millis}
		}, "lock.precision: t_order.touched is timestamp, and is mapped with the precision ms"},
		{func(m *mapping.Mapping) { m.DueIndex = "part" }, "due.index: no index part"},
		{func(m *mapping.Mapping) { m.Orders = "v_order" }, "table: v_order is a view"},
		{func(m *mapping.Mapping) { m.Version = "note" }, "lock: t_order.note is varchar(9)"},
		{func(m *mapping.Mapping) { m.Version = "user_id" }, "lock: t_order.user_id refers to table users"},
		{func(m *mapping.Mapping) { m.Version = "no_in_shop" }, "lock: a part of the unique index no_in_shop"},
		{func(m *mapping.Mapping) { m.Created, m.ClosedAt = nil, closed(moment("create_time")) }, "closed_at.column: t_order.create_time has a value from when"},
		{func(m *mapping.Mapping) { m.ClosedAt = closed(moment("placed")) }, "closed_at.column: t_order.placed has a value from when"},
		{func(m *mapping.Mapping) { m.ClosedAt = closed(moment("shut")) }, "closed_at.column: t_order.shut is a generated column"},
		{func(m *mapping.Mapping) { m.ClosedAt = closed(moment("late")) }, "closed_at.column: t_order.late is a generated column"},
		{func(m *mapping.Mapping) { m.ClosedAt = closed(stamp) }, "closed_at.column: t_order.touched is set to the present moment"},
		{func(m *mapping.Mapping) { m.Lock = stamp }, ""},
		{func(m *mapping.Mapping) { m.ClosedAt = append(closed(m.ClosedAt...), stamp) }, ""},
		{func(m *mapping.Mapping) { m.Lock = moment("placed") }, "lock.column: t_order.placed has the present moment as its default"},
		{func(m *mapping.Mapping) {
			m.ClosedAt = append(closed(m.ClosedAt...), moment("placed"))
		}, "closed_at[1].column: t_order.placed has the present moment as its default"},
		{func(m *mapping.Mapping) { m.Lock = moment("shut") }, "lock.column: t_order.shut is a generated column"},
		{func(m *mapping.Mapping) { m.Lock = moment("touched") }, "lock.type: t_order.touched is timestamp"},
		{func(m *mapping.Mapping) { m.Items.Where = []mapping.Condition{mapping.Is("id", mapping.Value{})} }, "items.where.id: t_order_line.id is bigint"},
		{func(m *mapping.Mapping) {
			m.Items.Location, m.Stock[0].Location = "id", mapping.Key{Column: "id", Type: mapping.Integer}
		}, "stock.sku.index: no unique index PRIMARY on goods_id and id alone"},
		{func(m *mapping.Mapping) { m.Stock[0].Version = "price" }, "stock.lock: t_goods_stock.price is decimal(9,2)"},
		{func(m *mapping.Mapping) {
			m.Status.Closed = []mapping.Value{mapping.TextValue("Wait_Pay")}
		}, `status.closed[0]: to which "WAIT_PAY" and "Wait_Pay" are the same`},
		{func(m *mapping.Mapping) { m.Status.To = mapping.TextValue("CLOSED_BY_ORDERCLOSE") }, "status.to: varchar(16), which has no"},
		{func(m *mapping.Mapping) { m.Items.Quantity = "id" }, "items.quantity: t_order_line.id numbers its rows"},
		{func(m *mapping.Mapping) { m.Stock[0].Available = "id" }, "stock.available: t_goods_stock.id is numbered by the database"},
		{func(m *mapping.Mapping) { m.Stock[0].Available = "price" }, "stock.available: t_goods_stock.price is decimal(9,2)"},
		{func(m *mapping.Mapping) { m.Stock[0].Available = "total" }, "stock.available: t_goods_stock.total is a generated column"},
	} {
		m := *shop
		items, stock := *shop.Items, *shop.Stock[0]
		m.Items, m.Stock = &items, []*mapping.Stock{&stock}
		c.change(&m)
		err := open(t, store.Options{DSN: dsn, Orders: &m, MaxOpenConns: 1}).CheckMapping(t.Context())
		if c.want == "" {
			must.Do(t, err)
			continue
		}
		path, what, _ := strings.Cut(c.want, ": ")
		wrong, ok := errors.AsType[*store.MappingError](err)
		if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Path != path || !strings.Contains(wrong.Problems[0].What, what) || wrong.Problems[0].Fix == "" {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
