package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func parseText(t *testing.T, content string) *Config {
	t.Helper()
	c := must.Get(Parse("t", []byte(content)))(t)
	return c
}

const full = `
topics: {prefix: a-}
buckets: [10s, 5m]
delays: {default: 1h, categories: {x: 5m, y: 6m}, max: 1d}
closer: {http: {url: "https://shop.example/close"}}
orders:
  table: t
  id: {column: id, type: integer}
  status: {column: s, from: 0, to: 1}
  due: {column: d, type: datetime, zone: "+08:00", precision: s}
  items: none
  stock: none
`

func TestChanges_UsesTheKeysOfTheFile(t *testing.T) {
	from := parseText(t, `
topics: {prefix: a-}
buckets: [10s, 1m, 2h]
delays: {default: 1h, categories: {x: 5m, z: 6m}}
closer: {http: {url: "https://shop.example/close", batch: 3}}
kafka: {session_timeout: 9s}
`)
	want := []Change{
		{"buckets.1m", "listed", "", true}, {"buckets.2h", "listed", "", true}, {"buckets.5m", "", "listed", true},
		{"closer.http.batch", "3", "200", false},
		{"delays.categories.y", "", "6m", true}, {"delays.categories.z", "6m", "", true},
		{"delays.max", "30d", "1d", true},
		{"kafka.session_timeout", "9s", "30s", false},
	}
	var got []Change
	for _, c := range Changes(from, parseText(t, full)) {
		if c.Key[:6] != "orders" {
			got = append(got, c)
		}
	}
	expect.Same(t, got, want, "changes")
	all := Changes(from, parseText(t, full))
	expect.That(t, len(all) != len(want), "the mapping of orders is not compared")
}

// TestChanges_DetectsEverySetting: changing the value of any key, however deep, gives a change.
func TestChanges_DetectsEverySetting(t *testing.T) {
	c := parseText(t, full)
	var each func(v reflect.Value, path string)
	each = func(v reflect.Value, path string) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		defer v.Set(was)
		switch {
		case hasKeys(v):
			for _, f := range fieldsOf(v) {
				each(f.value, join(path, f.name))
			}
			return
		case v.Kind() == reflect.Pointer && !v.IsNil():
			each(v.Elem(), path)
			return
		case v.Type() == reflect.TypeFor[mapping.Value]():
			v.Field(0).SetString("x")
		case v.CanInt():
			v.SetInt(v.Int() + int64(time.Hour))
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			return
		}
		expect.That(t, len(Changes(parseText(t, full), c)) != 0, "the change of %s is not detected", path)
	}
	each(reflect.ValueOf(c).Elem(), "")
	each(reflect.ValueOf(&c.Delays.Default).Elem(), "delays.default")
}

// TestChanges_ShowsRules: a rule that only moved to another line is no change, and any other difference is.
func TestChanges_ShowsRules(t *testing.T) {
	const one = "buckets: [10s]\norders: {table: t, id: id, status: {column: s, from: 0, to: 1}, due: {column: d, type: unix_s}, items: none, stock: none, " +
		"attributes: {pay: pay_type}}\n" +
		"delays:\n  categories: {a: 5m}\n  rules:\n  - {match: {category: a, attributes: {pay: [x, 3]}}, after: 9m, grace: 1m, remind: [1m, 2m]}\n"
	from := parseText(t, one+"  - {match: {}, after: never}\n")
	all := Changes(from, parseText(t, one+"\n  # later\n  - {match: {}, after: never}\n"))
	expect.That(t, len(all) <= 0, "only a line moved: %v", all)
	got := Changes(from, parseText(t, one+"  - {match: {attributes: {pay: y}}, after: 2m}\n"))
	want := []Change{{"delays.rules[1]", "every order: never", "pay y: after 2m", true}}
	expect.Same(t, got, want, "changes")
	if got, want := DescribeRule(from.Delays.Rules[0]), "category a, pay x or 3: after 9m grace 1m remind 2m 1m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e := Effective(parseText(t, "buckets: [10s]"), from)
	expect.That(t, len(e.Delays.Rules) == 2, "a reload applies no rules: %+v", e.Delays)
}

// TestChanges_ComparesListsOfTablesByValue: the same file read twice has no change, and a change shows values.
func TestChanges_ComparesListsOfTablesByValue(t *testing.T) {
	mapped := strings.Replace(full, "  items: none\n  stock: none\n", `  closed_at: [{column: gone, type: unix_s}, {column: seen, type: unix_s}]
  items: {table: lines, order: order_id, sku: sku, quantity: n}
  stock:
  - {table: goods, sku: {column: id, type: integer}, available: free, reserved: held, lock: {column: at, type: unix_ms}}
  - {table: parents, sku: id, line: parent, available: free}
`, 1)
	all := Changes(parseText(t, mapped), parseText(t, mapped))
	expect.That(t, len(all) <= 0, "nothing changed: %v", all)
	edit := strings.NewReplacer("lock: {column: at", "lock: {column: changed_at", "table: parents", "table: totals", "column: seen", "column: ended")
	changed := edit.Replace(mapped)
	want := []Change{
		{"orders.closed_at[1].column", "seen", "ended", false},
		{"orders.stock.lock.column", "at", "changed_at", false},
		{"orders.stock[1].table", "parents", "totals", false},
	}
	expect.Same(t, Changes(parseText(t, mapped), parseText(t, changed)), want, "changes")
}

func TestEffective_UsesLiveSettingsAndKeepsTheRest(t *testing.T) {
	running := parseText(t, "buckets: [10s]\ntopics: {prefix: old-}\ncloser: {target_latency: 7s}\n")
	given := parseText(t, "buckets: [10s, 1m]\ntopics: {prefix: new-}\ncloser: {target_latency: 8s}\npartitions: 3\ndelays: {default: 9m}\n")
	e := Effective(running, given)
	want := orderclose.Buckets{{Topic: "old-delay_10s", Length: 10 * time.Second}, {Topic: "old-delay_1m", Length: time.Minute}}
	expect.Same(t, e.Buckets, want, "buckets")
	expect.That(t, e.Closer.TargetLatency == 7*time.Second && e.Topics.Prefix == "old-" && e.Partitions == 3 && e.Delays.Default == 9*time.Minute, "%+v", e)
	for _, c := range Changes(running, e) {
		expect.That(t, c.Live, "%v is not live and was applied", c)
	}
}

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
	cfg := must.Get(Parse("topics.yaml", []byte(strings.Replace(byRule, `    - {match: {attributes: {vip: ["yes"]}}, grace: 1m}`+"\n", "", 1))))(t)
	want := mapping.TimeColumn{Column: "add_time", Type: mapping.DateTime, Zone: "Asia/Shanghai", Precision: mapping.Seconds}
	m := cfg.Orders
	expect.That(t, m.ByRule && m.Due == want && *m.Created == want, "%+v", m)
	for _, c := range []struct{ from, to, want string }{
		{"", "", "topics.yaml:6:28: delays.rules[0].match.attributes: with orders.due.from"},
		{"from: add_time,", "from: add_time, column: pay_until,", "orders.due.column: from is given too"},
		{"Asia/Shanghai", "Europe/Berlin", "clocks in Europe/Berlin are set forward and back"},
		{"  category: kind\n", "  created: {column: other, type: unix_s}\n", "orders.created: is not the column of due.from"},
		{"  table: t\n", "  table: t_{yyyyMM}\n  shards: {on: due, zone: UTC}\n", "orders.shards.on: no column says when an order is due"},
		{"items: none", "closed_at: {column: add_time, type: datetime, zone: UTC, precision: s}\n  items: none", "which destroys when the order was created"},
	} {
		_, err := Parse("topics.yaml", []byte(strings.Replace(byRule, c.from, c.to, 1)))
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s to %s: %v\nwant %s", c.from, c.to, err, c.want)
	}
}
