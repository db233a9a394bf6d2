package config

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose"
)

// grammar lists the keys of a topics.yaml and where the value of each key goes.
func (s *settings) grammar() parser {
	topics := fields{"prefix": text(&s.names.Prefix)}
	for _, name := range s.names.all() {
		topics[name.key] = text(name.at)
	}
	return section(fields{
		"topics": section(topics),
		// The Kafka protocol has 16 bits for a replication factor. The bound on partitions
		// is a safety limit: each costs a loop in the relay and files on the broker.
		"partitions":  integer(&s.partitions, 1, 10_000),
		"replication": integer(&s.replication, 1, 32_767),
		"buckets":     list("[10s, 1m, 5m]", s.bucket),
		"delays": section(fields{
			"default":    duration(&s.delays.Default),
			"max":        duration(&s.maxDelay),
			"mixed":      choice(&s.delays.Mixed, orderclose.Shortest, orderclose.Longest),
			"categories": entries(s.category),
		}),
		"compensator": section(fields{
			"period":    duration(&s.compensator.Period),
			"grace":     duration(&s.compensator.Grace),
			"page_size": integer(&s.compensator.PageSize, 1, MaxBatch),
			"rate":      integer(&s.compensator.Rate, 1, MaxRate),
			"lock": section(fields{
				"key":    text(&s.compensator.Lock.Key),
				"expiry": duration(&s.compensator.Lock.Expiry),
				"extend": duration(&s.compensator.Lock.Extend),
			}),
			"causes": section(fields{
				"records": integer(&s.compensator.Causes.Records, 0, MaxCauseRecords),
				"time":    duration(&s.compensator.Causes.Time),
			}),
			"pauses": section(fields{"wait": durationOrNever(&s.compensator.Pauses.Wait)}),
		}),
		"orders": s.mapping,
		"accept": list("[long_smallest_bucket]", s.acceptance),
		"closer": section(fields{
			"batch":          integer(&s.closer.Batch, 1, MaxBatch),
			"target_latency": duration(&s.closer.TargetLatency),
			"kind":           choice(&s.closer.Kind, KindSQL, KindHTTP),
			"http":           s.closer.HTTP.grammar(),
			"payment":        s.closer.Payment.grammar(),
		}),
		"outbox": section(fields{
			"batch":     integer(&s.outbox.Batch, 1, MaxBatch),
			"in_flight": integer(&s.outbox.InFlight, 1, 16),
		}),
	})
}

// bucket reads one entry of the list of buckets: a length, or a length with the flag
// draining.
func (s *settings) bucket(r *reader, path string, n *yaml.Node) {
	b := bucket{path: path}
	if resolveAlias(n).Kind != yaml.MappingNode {
		duration(&b.length)(r, path, n)
	} else {
		b.path = join(path, "length")
		section(fields{"length": duration(&b.length), "draining": yesOrNo(&b.draining)})(r, path, n)
		if r.at[b.path] == nil && !r.bad[b.path] {
			r.refuse(b.path, n, "is missing", "write {length: 10s, draining: true}")
		}
	}
	if !r.bad[b.path] {
		s.buckets = append(s.buckets, b)
	}
}

func yesOrNo(to *bool) parser {
	return value("true or false", "write true or false", func(raw *yaml.Node) (wrong string) {
		if raw.ShortTag() != "!!bool" || raw.Decode(to) != nil {
			return quote(raw.Value) + " is neither true nor false"
		}
		return ""
	})
}

// value reads a single value by parse, which returns what is wrong with the value, or "". want names
// the expected kind, and hint says how to fix a wrong one.
func value(want, hint string, parse func(raw *yaml.Node) (wrong string)) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if raw, ok := r.scalar(path, n, want, hint); ok {
			if wrong := parse(raw); wrong != "" {
				r.refuse(path, n, wrong, hint)
			}
		}
	}
}

// category reads the delay of one category.
func (s *settings) category(r *reader, path, name string, n *yaml.Node) {
	var d time.Duration
	if duration(&d)(r, path, n); !r.bad[path] {
		s.delays.ByCategory[name] = d
	}
}

func duration(to *time.Duration) parser {
	return value("a duration", durationHint, func(raw *yaml.Node) string {
		d, err := ParseDuration(raw.Value)
		if err != nil {
			return err.Error()
		}
		*to = d
		return ""
	})
}

// durationOrNever reads a duration, or the word never.
func durationOrNever(to *time.Duration) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if n := resolveAlias(n); n.Kind == yaml.ScalarNode && n.Value == "never" {
			*to = Never
			return
		}
		duration(to)(r, path, n)
	}
}

func text(to *string) parser {
	return func(r *reader, path string, n *yaml.Node) {
		raw, ok := r.scalar(path, n, "text", "write it in quotes")
		if !ok {
			return
		}
		if raw.ShortTag() != "!!str" {
			r.refuse(path, n, fmt.Sprintf("%s is read as a value other than text", raw.Value),
				fmt.Sprintf("write it in quotes, %q", raw.Value))
			return
		}
		*to = raw.Value
	}
}

func integer(to *int, low, high int) parser {
	hint := fmt.Sprintf("write one from %d to %d", low, high)
	return value("a whole number", hint, func(raw *yaml.Node) string {
		var i int
		switch err := raw.Decode(&i); {
		case raw.ShortTag() != "!!int" || err != nil:
			return quote(raw.Value) + " is not a whole number"
		case i < low || i > high:
			return raw.Value + " is out of range"
		}
		*to = i
		return ""
	})
}

func choice[T ~string](to *T, these ...T) parser {
	hint := fmt.Sprintf("write %s or %s", these[0], these[1])
	return value("a word", hint, func(raw *yaml.Node) string {
		if !slices.Contains(these, T(raw.Value)) {
			return fmt.Sprintf("%s is neither %s nor %s", quote(raw.Value), these[0], these[1])
		}
		*to = T(raw.Value)
		return ""
	})
}

// texts reads a list of texts. example is shown to a person who wrote something else.
func texts(example string, to *[]string) parser {
	return list(example, func(r *reader, path string, n *yaml.Node) {
		var s string
		if text(&s)(r, path, n); !r.bad[path] {
			*to = append(*to, s)
		}
	})
}
