package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// grammar lists the keys of a topics.yaml and where the value of each key goes.
func (s *settings) grammar() parser {
	topics := Fields{"prefix": Text(&s.Topics.Prefix)}
	for _, key := range []string{"close", "dead_letter", "control", "events", "delay"} {
		topics[key] = Dropped("leave it out: the name is fixed, and topics.prefix is put before it")
	}
	all := Fields{
		"topics": section(topics),
		// The Kafka protocol has 16 bits for a replication factor. The bound on partitions
		// is a safety limit: each costs a loop in the relay and files on the broker.
		"partitions":  integer(&s.Partitions, 1, 10_000),
		"replication": integer(&s.Replication, 1, 32_767),
		"sync":        Choice(&s.Sync, SyncAlways, SyncNever),
		"kafka":       section(Fields{"session_timeout": duration(&s.Kafka.SessionTimeout)}),
		"buckets":     list("[10s, 1m, 5m]", s.bucket),
		"delays": section(Fields{
			"default": duration(&s.Delays.Default),
			"max":     duration(&s.MaxDelay),
			"mixed": Dropped("leave it out: an order with several categories has the shortest of their delays; " +
				"write an order that needs another with the category that decides alone"),
			"categories": entries(s.category),
			"rules":      list("- match: {category: virtual}", s.rule),
		}),
		"compensator": section(Fields{
			"period":    duration(&s.Compensator.Period),
			"page_size": Dropped("leave it out: a page is a tenth of compensator.rate, at most 500 orders"),
			"rate":      integer(&s.Compensator.Rate, 1, MaxRate),
			"lock":      s.Compensator.Lock.grammar(),
			"causes":    Dropped("leave it out: a sweep looks up what is cheap, and orderclose order ID has the rest"),
			"pauses":    Dropped("leave it out: pauses are rows of the database"),
		}),
		"orders": s.mapping,
		"accept": list("[long_smallest_bucket]", TextOf(s.acceptance)),
		"closer": section(Fields{
			"batch":          Dropped("leave it out: a closer takes 500 orders at most, and fewer where that is faster, see closer.target_latency"),
			"target_latency": duration(&s.Closer.TargetLatency),
			"kind":           Dropped("leave it out: the service of closer.http.url closes the orders, and without a url the database"),
			"http":           s.Closer.HTTP.grammar(),
			"payment":        s.Closer.Payment.grammar(),
		}),
		"outbox":  Dropped("leave it out: a dispatcher sends two batches of 999 rows at once; run more dispatchers for more"),
		"tracing": section(Fields{"after_delay": Choice(&s.Tracing.AfterDelay, LinkTrace, ContinueTrace)}),
	}
	for _, room := range s.rooms {
		all[room.key] = room.parse
	}
	return section(all)
}

// grammar reads the kind of the lock. Earlier versions had keys below it.
func (l *Lock) grammar() parser {
	keys := section(Fields{
		"kind":   Dropped("write lock: redis or lock: database"),
		"key":    Dropped("leave it out: it is lock:scan_unpaid_orders, with topics.prefix before it"),
		"expiry": Dropped("leave it out: the lock of a killed process ends after 15s"),
		"extend": Dropped("leave it out: the lock is extended each 5s"),
	})
	return optional(func() parser { return wordOr(Choice(&l.Kind, LockRedis, LockDatabase), keys) })
}

// wordOr reads a single value by word, and anything else by other.
func wordOr(word, other parser) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.isAny(path, word, other) {
			return
		}
		read := other
		if resolveAlias(n).Kind == yaml.ScalarNode {
			read = word
		}
		read(r, path, n)
	}
}

// bucket reads one entry of the list of buckets.
func (s *settings) bucket(r *reader, path string, n *yaml.Node) {
	b := bucket{path: path}
	if duration(&b.length)(r, path, n); !r.bad[path] {
		s.buckets = append(s.buckets, b)
	}
}

func yesOrNo(to *bool) parser {
	return value("true or false", "write true or false", schema{"type": "boolean"}, func(raw *yaml.Node) (wrong string) {
		if raw.ShortTag() != "!!bool" || raw.Decode(to) != nil {
			return quote(raw.Value) + " is neither true nor false"
		}
		return ""
	})
}

// value reads a single value by parse, which returns what is wrong with the value, or "". want names
// the expected kind, and hint says how to fix a wrong one. is has the kind for Schema, which may accept more than parse.
func value(want, hint string, is schema, parse func(raw *yaml.Node) (wrong string)) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.is(is) {
			return
		}
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
		s.Delays.ByCategory[name] = d
	}
}

func duration(to *time.Duration) parser {
	return value("a duration", durationHint, schema{"type": "string", "pattern": durationPattern}, func(raw *yaml.Node) string {
		d, err := ParseDuration(raw.Value)
		if err != nil {
			return err.Error()
		}
		*to = d
		return ""
	})
}

// Text reads any text.
func Text[T ~string](to *T) parser {
	return TextOf(func(text string) (string, string) { *to = T(text); return "", "" })
}

// TextOf reads a text and passes it to use, which stores it, or returns what is wrong with it and how to
// fix it.
func TextOf(use func(text string) (wrong, do string)) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.is(schema{"type": "string"}) {
			return
		}
		raw, ok := r.scalar(path, n, "text", "write it in quotes")
		if !ok {
			return
		}
		if raw.ShortTag() != "!!str" {
			r.refuse(path, n, fmt.Sprintf("%s is read as a value other than text", raw.Value),
				fmt.Sprintf("write it in quotes, %q", raw.Value))
			return
		}
		if wrong, do := use(raw.Value); wrong != "" {
			r.refuse(path, n, wrong, do)
		}
	}
}

func integer(to *int, low, high int) parser {
	hint := fmt.Sprintf("write one from %d to %d", low, high)
	return value("a whole number", hint, schema{"type": "integer", "minimum": low, "maximum": high}, func(raw *yaml.Node) string {
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

// Choice reads one of several words.
func Choice[T ~string](to *T, these ...T) parser {
	last := len(these) - 1
	first := strings.Trim(strings.ReplaceAll(fmt.Sprint(these[:last]), " ", ", "), "[]")
	return value("a word", fmt.Sprintf("write %s or %s", first, these[last]), schema{"enum": these}, func(raw *yaml.Node) string {
		if !slices.Contains(these, T(raw.Value)) {
			return fmt.Sprintf("%s is neither %s nor %s", quote(raw.Value), first, these[last])
		}
		*to = T(raw.Value)
		return ""
	})
}

// texts reads a list of texts, without space at their ends. example is shown to a person who wrote something else.
func texts(example string, to *[]string) parser {
	return list(example, TextOf(func(text string) (string, string) {
		*to = append(*to, strings.TrimSpace(text))
		return "", ""
	}))
}
