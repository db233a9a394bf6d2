package config

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

const byRule = `buckets: [1m]
delays:
  default: 30m
  categories: {virtual: 5m}
  rules:
    - {match: {attributes: {vip: ["yes"]}}, grace: 1m}
    - {match: {category: virtual}, after: 10m}
orders:
  table: t
  id: id
  status: {column: s, from: 0, to: 1}
  due: {from: add_time, type: datetime, zone: Asia/Shanghai, precision: s}
  category: kind
  items: none
  stock: none
`

func TestDueByRule(t *testing.T) {
	cfg, err := Parse("topics.yaml", []byte(strings.Replace(byRule, `    - {match: {attributes: {vip: ["yes"]}}, grace: 1m}`+"\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	want := mapping.TimeColumn{Column: "add_time", Type: mapping.DateTime, Zone: "Asia/Shanghai", Precision: mapping.Seconds}
	if m := cfg.Orders; !m.ByRule || m.Due != want || *m.Created != want {
		t.Errorf("%+v", m)
	}
	for _, c := range []struct{ from, to, want string }{
		{"", "", "topics.yaml:6:28: delays.rules[0].match.attributes: with orders.due.from"},
		{"from: add_time,", "from: add_time, column: pay_until,", "orders.due.column: from is given too"},
		{"Asia/Shanghai", "Europe/Berlin", "clocks in Europe/Berlin are set forward and back"},
		{"  category: kind\n", "  created: {column: other, type: unix_s}\n", "orders.created: is not the column of due.from"},
		{"  table: t\n", "  table: t_{yyyyMM}\n  shards: {by: month, on: due, zone: UTC}\n", "orders.shards.on: no column says when an order is due"},
		{"items: none", "closed_at: {column: add_time, type: datetime, zone: UTC, precision: s}\n  items: none", "which destroys when the order was created"},
	} {
		if _, err := Parse("topics.yaml", []byte(strings.Replace(byRule, c.from, c.to, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v\nwant %s", c.from, c.to, err, c.want)
		}
	}
}
