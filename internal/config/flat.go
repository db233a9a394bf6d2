package config

import (
	"fmt"
	"reflect"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Flat returns the settings of a configuration by key, as internal/reload compares them.
func Flat(c *Config) map[string]string {
	flat := map[string]string{"delays.default": FormatDuration(c.Delays.Default)}
	for category, d := range c.Delays.ByCategory {
		flat["delays.categories."+category] = FormatDuration(d)
	}
	for i, rule := range c.Delays.Rules {
		flat[RulePath(i)] = DescribeRule(rule)
	}
	for _, b := range c.Buckets {
		flat["buckets."+FormatDuration(b.Length)] = "listed"
	}
	flatten(flat, "", reflect.ValueOf(c))
	return flat
}

// flatten adds the settings under a value. A struct whose fields have no keys is compared by its printed form.
func flatten(flat map[string]string, key string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		flatten(flat, key, v.Elem())
	case v.Type() == reflect.TypeFor[time.Duration]():
		flat[key] = FormatDuration(time.Duration(v.Int()))
	case hasKeys(v):
		for _, f := range fieldsOf(v) {
			flatten(flat, join(key, f.name), f.value)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Pointer: // fmt prints the addresses of its elements
		for i := range v.Len() {
			flatten(flat, mapping.ListPath(key, i), v.Index(i))
		}
	default:
		flat[key] = fmt.Sprint(v.Interface())
	}
}
