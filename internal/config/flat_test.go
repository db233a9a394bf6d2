package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

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

// TestFlat_HasEverySetting: changing the value of any key, however deep, changes it.
func TestFlat_HasEverySetting(t *testing.T) {
	c := must.Get(Parse("t", []byte(full)))(t)
	before := Flat(c)
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
		expect.That(t, !maps.Equal(before, Flat(c)), "the change of %s is not detected", path)
	}
	each(reflect.ValueOf(c).Elem(), "")
	each(reflect.ValueOf(&c.Delays.Default).Elem(), "delays.default")
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

// Schema returns the keys of a topics.yaml and the kinds of their values as a JSON schema (draft 7) for editors.
// It follows from the tags. A file that it refuses, Parse refuses too; Parse also compares values with each other.
func Schema() ([]byte, error) {
	all := schemaOfSection(fieldsOf(reflect.ValueOf(defaults()).Elem()))
	all["$schema"], all["title"] = "http://json-schema.org/draft-07/schema#", "topics.yaml of orderclose"
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// schema is a part of a JSON schema.
type schema map[string]any

func anyOf(all ...schema) schema { return schema{"anyOf": all} }

func schemaOfSection(fields []field) schema {
	properties := schema{}
	for _, key := range keysOf(fields) {
		if found := under(fields, key); found[0].name == "" {
			properties[key] = schemaOf(found[0])
		} else {
			properties[key] = schemaOfSection(found)
		}
	}
	section := schema{"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties}
	if short := shortOf(fields); short != nil {
		return anyOf(schemaOf(*short), section)
	}
	return section
}

// durationPattern matches each text that ParseDuration accepts, and hardly any other.
const durationPattern = `^(?:[0-9]+d|[+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:ns|us|µs|μs|ms|s|m|h))(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:ns|us|µs|μs|ms|s|m|h))*$`

func schemaOf(f field) (all schema) {
	has := func(tag string) bool { _, has := f.tag.Lookup(tag); return has }
	duration, scalar := schema{"type": "string", "pattern": durationPattern}, schema{"type": []string{"string", "integer"}}
	switch v := f.value; f.value.Interface().(type) {
	case time.Duration:
		return duration
	case orNever:
		return anyOf(duration, schema{"const": "never"})
	case word:
		return scalar
	case mapping.Values:
		one := schema{"type": []string{"string", "number", "null"}}
		list := schema{"type": "array", "items": one, "minItems": 1}
		return anyOf(one, list, schema{"type": "object", "additionalProperties": false, "required": []string{"not"},
			"properties": schema{"not": anyOf(one, list)}})
	case mapping.Value:
		return scalar
	case bool:
		return schema{"type": "boolean"}
	case int:
		low, _ := strconv.Atoi(f.tag.Get("min"))
		high, _ := strconv.Atoi(f.tag.Get("max"))
		return schema{"type": "integer", "minimum": low, "maximum": high}
	default:
		switch {
		case has("enum"):
			return schema{"enum": strings.Fields(f.tag.Get("enum"))}
		case v.Kind() == reflect.String, v.Type() == reflect.TypeFor[time.Time]():
			return schema{"type": "string"}
		case v.Kind() == reflect.Struct:
			return schemaOfSection(fieldsOf(v))
		case v.Kind() == reflect.Pointer:
			all = schemaOfSection(fieldsOf(reflect.New(v.Type().Elem()).Elem()))
		case has("keyed"), v.Kind() == reflect.Map:
			all = schema{"type": []string{"object", "null"}, "additionalProperties": entryOf(f)}
		default:
			if all = (schema{"type": []string{"array", "null"}, "items": entryOf(f)}); has("one") {
				all = anyOf(entryOf(f), all)
			}
		}
		if has("none") {
			all = anyOf(all, schema{"const": "none"}, schema{"const": "no"})
		}
	}
	return all
}

// entryOf returns the schema of an entry of a list or a map.
func entryOf(f field) schema {
	entry := reflect.New(f.value.Type().Elem()).Elem()
	switch _, keyed := f.tag.Lookup("keyed"); {
	case keyed:
		entry = entry.Field(1)
	case entry.Kind() == reflect.Pointer:
		entry = reflect.New(entry.Type().Elem()).Elem()
	}
	return schemaOf(field{"", entry, f.tag})
}
