package config

import (
	"fmt"
	"os"
	"slices"
)

// Salvaged is the usable part of a topics.yaml that may be broken.
type Salvaged struct {
	*Config
	// Problems lists the mistakes of the file. If it is empty, Config is the same as from Load.
	Problems Problems
	// OrdersUnknown says that the file does not tell in which tables the orders are.
	// Orders is then nil, and nil does not mean the reference schema.
	OrdersUnknown bool
}

// Salvage reads the file at path for commands that only read. Such a command must work
// when everything else is down because somebody has just broken the file. Salvage uses the
// default for each value that cannot be parsed, and for each refused topic name. It leaves
// out buckets that are too short or listed twice; if no bucket is left, it uses the default
// buckets. Values that only contradict each other stay as the file has them. It returns an
// error only if the file cannot be read.
func Salvage(path string) (Salvaged, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Salvaged{}, fmt.Errorf("read the configuration: %w; pass the path of topics.yaml", err)
	}
	r := newReader(path)
	s := defaults()
	if r.document(data) {
		if r.root != nil {
			s.grammar()(r, "", r.root)
		}
		r.check(s)
	}
	unknown := len(r.problems) > 0 && (r.root == nil || r.bad[""] || r.anyBad("orders"))
	if len(r.problems) > 0 {
		r.useDefaults(s)
	}
	if unknown {
		s.orders, s.ordersAt = nil, nil
	}
	return Salvaged{Config: s.config(), Problems: r.problems.sorted(), OrdersUnknown: unknown}, nil
}

// useDefaults replaces each refused topic name by its default, and removes unusable buckets.
func (r *reader) useDefaults(s *settings) {
	d := defaults()
	for path, name := range map[string]struct{ to, standard *string }{
		"topics.prefix": {&s.prefix, &d.prefix}, "topics.close": {&s.close, &d.close},
		"topics.replay": {&s.replay, &d.replay}, "topics.dead_letter": {&s.deadLetter, &d.deadLetter},
		"topics.events": {&s.events, &d.events}, "topics.control": {&s.control, &d.control},
		"topics.delay": {&s.delay, &d.delay},
	} {
		if r.bad[path] {
			*name.to = *name.standard
		}
	}
	var usable []bucket
	for _, b := range s.buckets {
		twin := slices.ContainsFunc(usable, func(o bucket) bool { return o.length == b.length })
		if b.length >= minBucket && !twin {
			usable = append(usable, b)
		}
	}
	s.buckets = usable
	if len(s.buckets) == 0 {
		for _, b := range Default().Buckets {
			s.buckets = append(s.buckets, bucket{length: b.Length})
		}
	}
}
