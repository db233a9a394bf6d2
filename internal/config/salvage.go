package config

import (
	"fmt"
	"os"
	"slices"
)

// Salvaged is what can be used of a topics.yaml that may be broken.
type Salvaged struct {
	*Config
	// Problems say what is wrong with the file. With none, the Config is the one of Load.
	Problems Problems
	// OrdersUnknown says that the file does not tell in which tables the orders are.
	// Orders is nil then, and does not mean the reference schema.
	OrdersUnknown bool
}

// Salvage reads the file at path for commands that only look, as while everything else
// is down and somebody has just broken the file. It returns each value of the file that
// is right by itself, and the default in place of each other one. The error is of a file
// that cannot be read at all.
func Salvage(path string) (Salvaged, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Salvaged{}, fmt.Errorf("the configuration cannot be read; name the right topics.yaml: %w", err)
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
		r.drop(s)
	}
	if unknown {
		s.orders, s.ordersAt = nil, nil
	}
	return Salvaged{Config: s.config(), Problems: r.problems.sorted(), OrdersUnknown: unknown}, nil
}

// drop puts the default in place of each value that was refused and that names a topic.
func (r *reader) drop(s *settings) {
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
