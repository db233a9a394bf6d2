package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// now is the clock of these tests; records were appended at the same time.
var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// litemall is a mapping with a DATETIME in a zone of its own.
func litemall() *mapping.Mapping {
	return &mapping.Mapping{
		Orders: "litemall_order", ID: mapping.Key{Column: "id", Type: mapping.Integer},
		Status:  mapping.Status{Column: "order_status", From: mapping.OneOf{mapping.IntValue(101)}, To: mapping.IntValue(103)},
		Due:     mapping.TimeColumn{Column: "pay_deadline", Type: mapping.DateTime, Zone: "Asia/Shanghai", Precision: mapping.Seconds},
		Created: &mapping.TimeColumn{Column: "add_time", Type: mapping.DateTime, Zone: "Asia/Shanghai", Precision: mapping.Seconds},
		Where:   []mapping.Condition{mapping.Is("deleted", mapping.IntValue(0))}, Category: "kind",
	}
}

// explain decodes a value and says what becomes of each row.
func explain(t *testing.T, f Format, m *mapping.Mapping, value string) string {
	t.Helper()
	r := must.Get(newRowReader(Options{Format: f, Orders: m, LeaveOverdue: 2 * time.Hour}))(t)
	raw := []byte(value)
	if value == "" {
		raw = nil
	}
	from, changes, skip, err := readChange(f, raw)
	switch {
	case err != nil:
		return err.Error()
	case len(changes) == 0:
		return string(skip)
	case !isOrders(m, from):
		return string(otherTable)
	}
	var all []string
	for _, c := range changes {
		o, is, err := r.decide(c, now, now)
		text := string(is)
		if err != nil {
			text = err.Error()
		} else if is == scheduled {
			text = fmt.Sprintf("%s %s %s %s", o.ID, o.Category, o.CreatedAt.UTC().Format(time.RFC3339), o.Due.UTC().Format(time.RFC3339Nano))
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// The values are those that the documents of each program describe. The recorded records of debezium_test.go have what its connectors usually write.
func TestReadChange_EachFormat(t *testing.T) {
	// 2026-11-23 20:30:00 and 20:00:00 of a clock in Shanghai, which Debezium writes as if it were UTC.
	const row = `{"id": 17, "order_status": 101, "kind": "book", "add_time": 1795464000000, "pay_deadline": 1795465800000, "deleted": 0}`
	const source = `"source": {"version": "3.0.8.Final", "connector": "mysql", "name": "shop", "ts_ms": 1795435200000, "snapshot": "false", "db": "litemall", ` +
		`"table": "litemall_order", "server_id": 1, "file": "binlog.000003", "pos": 484, "row": 0}`
	const book = "17 book 2026-11-23T12:00:00Z 2026-11-23T12:30:00Z"
	const canal = `"database": "litemall", "es": 1795435200000, "id": 3, "isDdl": false, "mysqlType": {"id": "int", "pay_deadline": "datetime"}, "pkNames": ` +
		`["id"], "sql": "", "sqlType": {"id": 4}, "table": "litemall_order", "ts": 1795435200123`
	const data = `{"id": "17", "order_status": "101", "kind": "book", "add_time": "2026-11-23 20:00:00", "pay_deadline": "2026-11-23 20:30:00", "deleted": "0"}`
	const maxwell = `"database": "litemall", "table": "litemall_order", "ts": 1795435200, "xid": 8231, "commit": true`
	const maxwellRow = `{"id": 17, "order_status": 101, "kind": null, "add_time": "2026-11-23 20:00:00", "pay_deadline": "2026-11-23 20:30:00", "deleted": 0}`
	for _, c := range []struct {
		name   string
		format Format
		value  string
		want   string
	}{
		{"flat with metadata", Debezium, strings.Replace(row, "{", `{"__op": "u", "__deleted": "false", "source": "app", "op": 3, `, 1), book},
		{"flat tombstone with schema", Debezium, `{"schema": {}, "payload": null}`, "no_row"},
		{"flat tombstone", Debezium, "null", "no_row"},
		{"truncate", Debezium, `{` + source + `, "op": "t", "ts_ms": 1}`, "no_row"},
		{"key alone before", Debezium, `{"before": {"id": 17}, "after": ` + row + `, ` + source + `, "op": "u"}`, book},
		{"another table", Debezium, `{"before": null, "after": ` + row + `, ` + strings.Replace(source, "litemall_order", "litemall_cart", 1) +
			`, "op": "c"}`, "other_table"},
		{"long overdue", Debezium, strings.Replace(row, "1795465800000", "1795365800000", 1), "overdue"},
		{"in 2058", Debezium, strings.Replace(row, "1795465800000", "2795465800000", 1), "no_due"},
		{"in 2038", Debezium, strings.Replace(row, "1795465800000", "2147483647000", 1), "no_due"},
		{"in 2099", Debezium, strings.Replace(row, "1795465800000", `"2099-12-31 23:59:59"`, 1), "no_due"},
		{"in nine years", Debezium, strings.Replace(row, "1795465800000", `"2035-11-23 20:30:00"`, 1), "17 book 2026-11-23T12:00:00Z 2035-11-23T12:30:00Z"},
		{"microseconds", Debezium, strings.Replace(row, "1795465800000", "1795465800000001", 1), "17 book 2026-11-23T12:00:00Z 2026-11-23T12:30:00.000001Z"},
		{"ISO text", Debezium, strings.Replace(row, "1795465800000", `"2026-11-23T20:30:00Z"`, 1), book},
		{"VIRTUAL column", Debezium, strings.Replace(row, "pay_deadline", "other", 1),
			"bad_value: the row cannot be scheduled: it has no column pay_deadline: a VIRTUAL generated column is not in the log of the database, and a " +
				"connector may leave columns out"},
		{"unreadable time", Debezium, strings.Replace(row, "1795465800000", `"soon"`, 1),
			`bad_value: the row cannot be scheduled: column pay_deadline has "soon", which is no time`},
		{"change of the schema", Debezium, `{` + source + `, "ts_ms": 1, "ddl": "ALTER TABLE litemall_order ADD c INT", "tableChanges": [{"type": "ALTER"}]}`,
			"no_row"},
		{"change of the schema with schema", Debezium, `{"schema": {}, "payload": {` + source + `, "databaseName": "litemall", "ddl": "ALTER TABLE"}}`, "no_row"},
		{"heartbeat", Debezium, `{"ts_ms": 1795435200456}`, "no_row"},
		{"end of a transaction", Debezium, `{"status": "END", "id": "571:53195829", "event_count": 2, "data_collections": [], "ts_ms": 1}`, "no_row"},
		{"message", Debezium, `{"op": "m", "ts_ms": 1, ` + source + `, "message": {"prefix": "x", "content": "aGk="}}`, "no_row"},
		{"row without the id", Debezium, strings.Replace(row, `"id"`, `"number"`, 1), "bad_value: the row cannot be scheduled: it has no column id"},
		{"row without the status", Debezium, strings.Replace(row, `"order_status"`, `"state"`, 1),
			"bad_value: the row cannot be scheduled: it has no column order_status"},
		{"envelope of a row without columns", Debezium, `{"before": null, "after": {"number": 17}, ` + source + `, "op": "c"}`,
			"bad_value: the row cannot be scheduled: it has no column id"},
		{"envelope without a source", Debezium, `{"before": null, "after": ` + row + `, "op": "c"}`, "bad_value: the row cannot be scheduled: it has no column id"},
		{"no id", Debezium, strings.Replace(row, "17", `"x-17"`, 1), `bad_value: the row cannot be scheduled: column id has "x-17", which is no id of type integer`},
		{"Avro", Debezium, "\x00\x00\x00\x00\x01", "bad_value: the value is no change record of debezium: it is no object in JSON, and other encodings, " +
			"such as Avro, are not read"},

		{"insert of two rows", Canal, `{"data": [` + data + `, ` + strings.Replace(data, "17", "18", 1) + `], ` + canal + `, "old": null, "type": "INSERT"}`,
			book + "; 18" + book[2:]},
		{"update", Canal, `{"data": [` + data + `, ` + data + `, ` + strings.Replace(data, "101", "201", 1) + `], ` + canal +
			`, "old": [{"kind": "game"}, {"pay_deadline": "2026-11-23 20:10:00"}, {"order_status": "101"}], "type": "UPDATE"}`, "unchanged; " + book + "; not_unpaid"},
		{"MINIMAL: another column", Canal, `{"data": [{"id": "17", "note": "y"}], ` + canal + `, "old": [{"note": "x"}], "type": "UPDATE"}`, "unchanged"},
		{"zero date", Canal, `{"data": [` + strings.Replace(data, "2026-11-23 20:30:00", "0000-00-00 00:00:00", 1) + `], ` + canal +
			`, "old": null, "type": "INSERT"}`, "no_due"},
		{"delete", Canal, `{"data": [` + data + `], ` + canal + `, "old": null, "type": "DELETE"}`, "no_row"},
		{"DDL", Canal, `{"data": null, "database": "litemall", "es": 1795435200000, "id": 4, "isDdl": true, "mysqlType": null, "old": null, "pkNames": null, ` +
			`"sql": "ALTER TABLE litemall_order ADD x INT", "sqlType": null, "table": "litemall_order", "ts": 1795435200123, "type": "ALTER"}`, "no_row"},
		{"another table", Canal, `{"data": [{"id": "1"}], ` + strings.Replace(canal, "litemall_order", "litemall_cart", 1) +
			`, "old": null, "type": "INSERT"}`, "other_table"},
		{"another format", Canal, `{"op": "c"}`, "bad_value: the value is no change record of canal: it has no type"},

		{"insert", Maxwell, `{` + maxwell + `, "type": "insert", "data": ` + maxwellRow + `}`, "17  2026-11-23T12:00:00Z 2026-11-23T12:30:00Z"},
		{"bootstrap", Maxwell, `{` + maxwell + `, "type": "bootstrap-insert", "data": ` + maxwellRow + `}`, "17  2026-11-23T12:00:00Z 2026-11-23T12:30:00Z"},
		{"beginning of a bootstrap", Maxwell, `{` + maxwell + `, "type": "bootstrap-start", "data": {}}`, "no_row"},
		{"update of nothing that matters", Maxwell, `{` + maxwell + `, "type": "update", "data": ` + maxwellRow + `, "old": {"kind": "book"}}`, "unchanged"},
		{"change of the schema", Maxwell, `{` + maxwell + `, "type": "table-alter", "old": {"columns": [{"type": "int", "name": "id"}]}, "sql": "ALTER TABLE x"}`,
			"no_row"},
		{"heartbeat", Maxwell, `{"type": "heartbeat", "database": "maxwell", "table": "heartbeats", "ts": 1, "data": {"heartbeat": 1}}`, "no_row"},
		{"MINIMAL: another column", Maxwell, `{` + maxwell + `, "type": "update", "data": {"id": 17, "address": "x"}, "old": {}}`, "unchanged"},
		{"MINIMAL: another column without old", Maxwell, `{` + maxwell + `, "type": "update", "data": {"id": 17, "note": "y"}}`, "unchanged"},
		{"MINIMAL: a payment", Maxwell, `{` + maxwell + `, "type": "update", "data": {"id": 17, "order_status": 201}, "old": {"order_status": 101}}`, "not_unpaid"},
		{"MINIMAL: a soft delete", Maxwell, `{` + maxwell + `, "type": "update", "data": {"id": 17, "deleted": 1}, "old": {"deleted": 0}}`, "excluded"},
		{"MINIMAL: a due time", Maxwell, `{` + maxwell + `, "type": "update", "data": {"id": 17, "pay_deadline": "2026-11-23 20:30:00"}, "old": {}}`,
			"17  2026-11-23T12:00:00Z 2026-11-23T12:30:00Z"},
		{"insert without the status", Maxwell, `{` + maxwell + `, "type": "insert", "data": {"id": 17, "note": "y"}}`,
			"bad_value: the row cannot be scheduled: it has no column order_status"},
		{"back to unpaid", Maxwell, `{` + maxwell + `, "type": "update", "data": ` + maxwellRow + `, "old": {"order_status": 102}}`,
			"17  2026-11-23T12:00:00Z 2026-11-23T12:30:00Z"},
		{"delete", Maxwell, `{` + maxwell + `, "type": "delete", "data": ` + maxwellRow + `}`, "no_row"},
		{"another format", Maxwell, `[]`, "bad_value: the value is no change record of maxwell: it is no object in JSON, and other encodings, " +
			"such as Avro, are not read"},
	} {
		expect.Equal(t, explain(t, c.format, litemall(), c.value), c.want, "%s, %s", c.format, c.name)
	}
}

// A time means the same in each notation of a connector.
func TestReadChange_TimesOfEachType(t *testing.T) {
	column := func(kind mapping.TimeType, zone string, p mapping.Precision) mapping.TimeColumn {
		return mapping.TimeColumn{Column: "due", Type: kind, Zone: zone, Precision: p}
	}
	for _, c := range []struct {
		column mapping.TimeColumn
		value  string
		want   string
	}{
		{column(mapping.Timestamp, "", mapping.Seconds), `"2026-11-23T20:30:00+08:00"`, "12:30:00"},          // the same
		{column(mapping.Timestamp, "", mapping.Seconds), `"2026-11-23 20:30:00"`, "12:30:00"},                // Canal, with intake.zone
		{column(mapping.TimestampTZ, "", mapping.Micros), `"2026-11-23 20:30:00.5+08"`, "12:30:00.5"},        // as PostgreSQL prints it
		{column(mapping.DateTime, "America/New_York", mapping.Seconds), `"2026-11-23 07:30:00"`, "12:30:00"}, // the zone of the mapping
		{column(mapping.UnixMillis, "", ""), `"1795437000500"`, "12:30:00.5"},                                // Canal
	} {
		m := &mapping.Mapping{
			Orders: "orders", ID: mapping.Key{Column: "id"}, Due: c.column,
			Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.TextValue("unpaid")}},
		}
		shanghai, _ := mapping.ParseZone("Asia/Shanghai")
		r := must.Get(newRowReader(Options{Orders: m, Zone: shanghai, LeaveOverdue: time.Hour}))(t)
		_, changes, _, err := readChange(Debezium, []byte(`{"id": "o", "state": "UNPAID", "due": `+c.value+`}`))
		must.Do(t, err)
		o, is, err := r.decide(changes[0], now, now)
		if got := o.Due.UTC().Format("15:04:05.999999999"); is != scheduled || got != c.want || o.CreatedAt != now {
			t.Errorf("%s %s %s: %s %v %v, want %s", c.column.Type, c.column.Zone, c.value, got, is, err, c.want)
		}
	}
}

// A record of the pipeline cannot have the bytes of a key, so it has the notation of the UUID.
func TestRow_ABinaryIDIsAUUID(t *testing.T) {
	for _, c := range []struct {
		kind mapping.KeyType
		text string
		want string
	}{
		{mapping.UUIDSwapped, "7abc7d4e0190fbffbfff000000000100", "0190fbff-7d4e-7abc-bfff-000000000100"},
		{mapping.UUIDBinary, "0190fbff-7d4e-7abc-bfff-000000000100", "0190fbff-7d4e-7abc-bfff-000000000100"},
		{mapping.UUIDBinary, "", ""}, {mapping.UUIDBinary, "?", "?"}, {mapping.Text, "AZD7/31Oery//wAAAAABAA==", "AZD7/31Oery//wAAAAABAA=="},
	} {
		expect.Equal(t, (row{"id": fmt.Appendf(nil, "%q", c.text)}).id(mapping.Key{Column: "id", Type: c.kind}), c.want, "%s %s", c.kind, c.text)
	}
}

func TestIsOrders_KnowsTheTablesOfMonthsAndTheDatabase(t *testing.T) {
	for _, c := range []struct {
		mapped          string
		database, table string
		want            bool
	}{
		{"orders", "any", "orders", true}, {"orders", "any", "orders_old", false}, {"Shop.Orders", "shop", "orders", true},
		{"shop.orders", "shop", "orders", true}, {"shop.orders", "other", "orders", false},
		{"orders_{yyyyMM}", "any", "orders_202611", true}, {"orders_{yyyyMM}", "any", "orders_items", false}, {"orders_{yyyyMM}", "any", "orders", false},
		{"shop.orders_{yyyyMM}", "other", "orders_202611", false}, {"orders", "", "", true},
	} {
		expect.Equal(t, isOrders(&mapping.Mapping{Orders: c.mapped}, source{c.database, c.table}), c.want, "%+v", c)
	}
}

// With due times by rule, the row has the time of creation only, and the category decides the delay: an update that sets it schedules the order again.
func TestDecide_ByRuleAddsTheDelayOfTheCategory(t *testing.T) {
	m := litemall()
	m.ByRule, m.Due = true, *m.Created
	delays := orderclose.Delays{Default: 30 * time.Minute, ByCategory: map[string]time.Duration{"long": 24 * time.Hour}}
	r := must.Get(newRowReader(Options{Format: Canal, Orders: m, LeaveOverdue: time.Hour, Delays: func() orderclose.Delays { return delays }}))(t)
	created := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		change, category string
		after            time.Duration
		want             outcome
	}{
		{`"type": "INSERT"`, "", 2 * time.Hour, overdue}, // due an hour and a half ago
		{`"type": "INSERT"`, "long", 2 * time.Hour, scheduled},
		{`"type": "UPDATE", "old": [{"kind": ""}]`, "long", 0, scheduled},
		{`"type": "UPDATE", "old": [{"note": ""}]`, "long", 0, unchanged},
	} {
		_, changes, _, err := readChange(Canal, []byte(`{`+c.change+`, "isDdl": false, "database": "shop", "table": "litemall_order", "data":
			[{"id": "7", "order_status": "101", "deleted": "0", "add_time": "2026-11-23 16:00:00", "kind": "`+c.category+`"}]}`))
		must.That(t, err == nil && len(changes) == 1, "%v %v", changes, err)
		o, is, err := r.decide(changes[0], created.Add(c.after), created)
		expect.That(t, is == c.want && err == nil && (is != scheduled || o.Due.Equal(created.Add(24*time.Hour))), "%+v: %s, due %v, %v", c, is, o.Due, err)
	}
}
