package cli

import (
	"strings"
	"testing"
)

// The trigger of MySQL has semicolons of its own. A table for each month has to be named.
func TestTrigger_PrintsSQLForAClient(t *testing.T) {
	file := topicsYAML(t, "buckets: [10s]\norders:\n  table: shop.orders_{yyyyMM}\n  id: id\n  status: {column: state, from: \"it's unpaid\", to: \"gone\"}\n"+
		"  due: {column: due, type: datetime, zone: Europe/Berlin, precision: s}\n  shards: {by: month, on: due, zone: UTC}\n  items: none\n  stock: none\n")
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--print"}, 2, []string{"name one, such as --table"}},
		{[]string{"--print", "--table", "shop.orders_202612"}, 0, []string{
			"DELIMITER //\nCREATE TRIGGER `shop`.`orderclose_schedule_orders_202612` AFTER INSERT ON `shop`.`orders_202612`", "= 'it''s unpaid'",
			"INSERT INTO `shop`.`outbox_schedules`", "COALESCE(CONVERT_TZ(NEW.`due`, 'Europe/Berlin', '+00:00'), NEW.`due` - INTERVAL '7200' SECOND)", "END IF//\nDELIMITER ;\n",
		}},
		{[]string{"--print=postgres", "--table", "orders_202612", "--database", "close"}, 0, []string{
			`CREATE OR REPLACE FUNCTION "close"."orderclose_schedule_orders_202612"()`, `INSERT INTO "close"."outbox_schedules"`, "AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC'",
		}},
		{[]string{"--print", "--drop", "--table", "orders_202612"}, 0, []string{"DROP TRIGGER `orderclose_schedule_orders_202612`;\n"}},
	} {
		out, errs, code := run(t, nil, append([]string{"trigger", "--config", file}, c.args...)...)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(out+errs, want) {
				t.Errorf("%v: exit %d, want %d and %s in\n%s%s", c.args, code, c.code, want, out, errs)
			}
		}
	}
}
