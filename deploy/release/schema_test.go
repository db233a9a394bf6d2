package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// mapped has most keys that topics.yaml has as comments only.
const mapped = `
buckets: [10s, 1m, 5m]
accept: [long_period]
closer: {target_latency: 1s, payment: {url: "https://shop.example/pay", batch: 20, cancel: true, recheck: [10m, 1h]}}
delays:
  categories: {virtual: 20m}
  rules:
    - {match: {category: [virtual], attributes: {pay: [card, 2]}}, after: 10m, grace: 1m, remind: [5m, 2m]}
    - {match: {}, after: never}
orders:
  table: t_order
  id: {column: id, type: integer, index: PRIMARY}
  status: {column: state, from: 0, to: 4, paid: [1, 2], closed: [5]}
  due: {column: pay_deadline, type: datetime, zone: "+08:00", precision: s, index: due}
  created: {column: add_time, type: datetime, zone: UTC, precision: s}
  closed_at: [end_time, {column: gone_ms, type: unix_ms}]
  category: kind
  lock: [version, {column: update_time, type: datetime, zone: UTC, precision: s}]
  set: {close_type: 3, closed_by: timeout}
  where: {deleted: 0, hidden_at: null}
  not_before: "2026-01-20T00:00:00+08:00"
  attributes: {pay: pay_type}
  on_close: ["UPDATE coupons SET used = 0 WHERE order_id IN ({ids})"]
  items: {table: t_line, order: order_id, sku: sku, quantity: num, where: {gift: 0}}
  stock: [{table: t_stock, sku: {column: sku, type: text}, available: free, reserved: held}]
  event: {type: order.closed, columns: [member_id]}
`

// structural matches what the parser says of keys and kinds of values, and not of what they mean together.
var structural = regexp.MustCompile(`unknown key|: want (keys|a list|text|a duration|a whole number|true or false|a word|a value|a status|` +
	`a constant|a moment), found`)

// Files are drawn by changes of complete ones. What the schema refuses, the parser refuses, and the schema refuses what the parser refuses for
// a key or for the kind of a value.
func TestTopicsSchema_AgreesWithTheParser(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	text := must.Get(os.ReadFile("../../topics.schema.json"))(t)
	must.Do(t, compiler.AddResource("topics.schema.json", must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)))
	schema := must.Get(compiler.Compile("topics.schema.json"))(t)
	file := must.Get(os.ReadFile("../../topics.yaml"))(t)
	refused := 0
	for seed := range uint64(1500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var drawn any
		must.Do(t, yaml.Unmarshal([][]byte{file, []byte(mapped)}[seed%2], &drawn))
		if seed > 1 { // first the files themselves
			drawn = changed(draw, drawn)
		}
		data := must.Get(json.Marshal(drawn))(t) // which is YAML too
		value := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(data)))(t)
		wrong := schema.Validate(value)
		_, err := config.Parse("t", data)
		if wrong != nil {
			refused++
		}
		expect.That(t, wrong == nil || err != nil, "seed %d: the parser accepts what the schema refuses: %v\n%s", seed, wrong, data)
		expect.That(t, wrong != nil || err == nil || !structural.MatchString(err.Error()), "seed %d: the schema accepts it: %v\n%s", seed, err, data)
		expect.That(t, seed > 1 || err == nil, "%v", err)
	}
	expect.That(t, refused > 200, "only %d of the files are wrong", refused)
}

// changed returns a value with another value, key or element somewhere in it.
func changed(draw *rand.Rand, v any) any {
	others := []any{nil, true, 7, 1.5, -1, "x", "5m", "none", []any{}, []any{"5m"}, map[string]any{}, map[string]any{"column": "c"}}
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if draw.IntN(8) > 0 && len(keys) > 0 {
			key := keys[draw.IntN(len(keys))]
			v[key] = changed(draw, v[key])
			return v
		}
		if draw.IntN(2) == 0 {
			v["unknown_key"] = others[draw.IntN(len(others))]
			return v
		}
	case []any:
		if draw.IntN(4) > 0 && len(v) > 0 {
			i := draw.IntN(len(v))
			v[i] = changed(draw, v[i])
			return v
		}
	}
	return others[draw.IntN(len(others))]
}
