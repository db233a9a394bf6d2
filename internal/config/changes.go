package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Change is a setting that differs between two configurations.
type Change struct {
	Key  string `json:"key"`  // as in the file, such as delays.categories.virtual or buckets.10s
	From string `json:"from"` // "" if the key was added
	To   string `json:"to"`   // "" if the key was removed
	// Live says that the change takes effect without a restart: a change of the buckets after
	// the rollout delay, any other change at once. If Live is false, the change takes effect
	// at the next start.
	Live bool `json:"live"`
}

// String describes the change in one line.
func (c Change) String() string {
	when := "from now on"
	if !c.Live {
		when = "from the next start on"
	}
	return fmt.Sprintf("%s: %s, was %s; %s", c.Key, cmp.Or(c.To, "none"), cmp.Or(c.From, "none"), when)
}

// Changes compares two configurations, key by key. It is a pure function.
func Changes(from, to *Config) []Change {
	before, after := flatten(from), flatten(to)
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var all []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if before[key] != after[key] {
			all = append(all, Change{Key: key, From: before[key], To: after[key], Live: live(key)})
		}
	}
	return all
}

// live reports whether a change of the setting takes effect without a restart. Delays and
// buckets do, and the properties that topics are checked against.
func live(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	return slices.Contains([]string{"delays", "buckets", "partitions", "replication", "sync"}, section)
}

// Effective returns the configuration in effect after a running process reads a new file:
// live settings of the new file, and the running values of all others. Topics of new
// buckets are named by the running pattern. It is a pure function.
func Effective(running, given *Config) *Config {
	e := *running
	e.Delays, e.MaxDelay = given.Delays, given.MaxDelay
	e.Partitions, e.Replication, e.Sync = given.Partitions, given.Replication, given.Sync
	e.Buckets = slices.Clone(given.Buckets)
	if e.Topics.Delay != given.Topics.Delay {
		for i, b := range e.Buckets {
			e.Buckets[i].Topic = e.Topics.OfBucket(b.Length)
		}
	}
	return &e
}

// flatten returns the settings of a configuration by key.
func flatten(c *Config) map[string]string {
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
	walk(flat, "", reflect.ValueOf(c))
	for key, settings := range c.Rooms {
		walk(flat, key, reflect.ValueOf(settings))
	}
	return flat
}

// walk adds the settings under a value. A struct whose fields have no keys is compared by its printed form.
func walk(flat map[string]string, key string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		walk(flat, key, v.Elem())
	case v.Type() == reflect.TypeFor[time.Duration]():
		flat[key] = FormatDuration(time.Duration(v.Int()))
	case hasKeys(v):
		for _, f := range fieldsOf(v) {
			walk(flat, join(key, f.name), f.value)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Pointer: // fmt prints the addresses of its elements
		for i := range v.Len() {
			walk(flat, mapping.ListPath(key, i), v.Index(i))
		}
	default:
		flat[key] = fmt.Sprint(v.Interface())
	}
}
