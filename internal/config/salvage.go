package config

import (
	"slices"
	"time"
)

// Salvaged is the usable part of a topics.yaml that may be broken.
type Salvaged struct {
	*Config
	// Problems lists the mistakes of the file. If it is empty, Config is the same as from Load.
	Problems Problems
	bad      map[string]bool // the refused paths; "" is the whole file
}

// Unknown reports whether the file does not tell the value of one of the keys, such as
// "topics.prefix": the key, its section or a value under it was refused or is misspelt. Config then
// has a default, which says nothing about the pipeline. If "orders" is unknown, Config.Orders is nil,
// and nil does not mean the reference schema.
func (s Salvaged) Unknown(keys ...string) bool {
	if s.bad[""] {
		return true
	}
	for path := range s.bad {
		for _, key := range keys {
			if isUnder(path, key) || isUnder(key, path) { //mutant:reference-schema-used
				return true
			}
		}
	}
	return false
}

// Salvage reads the file at path for commands that only read. Such a command must work
// when everything else is down because somebody has just broken the file. Salvage uses the
// default for each value that cannot be parsed, and for a refused prefix. It leaves
// out buckets that are too short or listed twice; if no bucket is left, it uses the default
// buckets. Values that only contradict each other stay as the file has them. It returns an
// error only if the file cannot be read.
func Salvage(path string, rooms ...AnySection) (Salvaged, error) {
	data, err := readTopics(path)
	if err != nil {
		return Salvaged{}, err
	}
	r, s := read(path, data, rooms)
	if len(r.problems) > 0 {
		if r.root == nil {
			r.bad[""] = true
		}
		r.useDefaults(s)
	}
	found := Salvaged{Problems: r.problems.sorted(), bad: r.bad}
	if found.Unknown("orders") {
		s.Orders, s.OrdersAt = nil, nil
	}
	found.Config = s.config()
	return found, nil
}

// useDefaults removes a refused prefix and unusable buckets.
func (r *reader) useDefaults(s *settings) {
	if r.bad["topics.prefix"] {
		s.Topics.Prefix = ""
	}
	seen := map[time.Duration]bool{}
	s.buckets = slices.DeleteFunc(s.buckets, func(b bucket) bool {
		twin := seen[b.length]
		seen[b.length] = true
		return twin || b.length < minBucket
	})
	if len(s.buckets) == 0 {
		s.buckets = defaultBuckets()
	}
}
