package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// minBucket is the length of the shortest bucket. A hop takes time of this order.
const minBucket = time.Second

// check finds problems that show only when values are compared with each other. Each value is right by itself.
func (r *reader) check(s *settings) {
	r.checkBuckets(s)
	r.checkDelays(s)
	r.checkRules(s)
	r.checkNames(s)
	r.checkBounds(s)
	if s.Orders != nil {
		s.Orders.Accept = s.Accept
	}
	r.checkMapping(s.Orders, s.MaxDelay)
	r.checkDueRules(s)
	r.checkClosing(s)
	if at := r.at["webhook"]; at != nil && s.Webhook.URL == "" {
		r.refuse("webhook", at, "url is missing", "write webhook: {url: https://shop.example/events}")
	}
}

func (r *reader) checkBuckets(s *settings) {
	if s.withoutKafka && r.root != nil && r.at["buckets"] == nil {
		s.Lengths = defaultLengths()
		return
	}
	if len(s.Lengths) == 0 {
		r.add(r.node("buckets"), "", "no bucket", "list the lengths of the delay topics, such as buckets: [10s, 1m, 5m, 30m, 2h, 12h]")
		return
	}
	r.checkSmallest(s)
	for i, length := range s.Lengths {
		path, twin := bucketPath(i), slices.Index(s.Lengths, length)
		switch {
		case length < minBucket:
			r.refuse(path, r.at[path], fmt.Sprintf("%s is shorter than %s", r.rawValue(path), FormatDuration(minBucket)), "make it longer or remove it")
		case twin < i:
			r.refuse(path, r.at[path], fmt.Sprintf("%s and %s are the same length", r.rawValue(bucketPath(twin)), r.rawValue(path)), "remove one")
		case length > s.MaxDelay:
			r.refuse(path, r.at[path], fmt.Sprintf("%s is longer than delays.max, %s: nothing would wait there", r.rawValue(path), FormatDuration(s.MaxDelay)),
				"raise delays.max, or remove the bucket")
		}
	}
}

// bucketPath returns the path of a bucket of the list.
func bucketPath(i int) string { return fmt.Sprintf("buckets[%d]", i) }

// checkSmallest refuses a long smallest bucket.
func (r *reader) checkSmallest(s *settings) {
	smallest := slices.Min(s.Lengths)
	if smallest > maxSmallestBucket { //mutant:long-smallest-bucket
		path := bucketPath(slices.Index(s.Lengths, smallest))
		r.refuseUnless(s, LongSmallestBucket, path,
			fmt.Sprintf("the smallest bucket is %s, longer than %s: every shorter delay goes there too, so a relay reads each of its records at once, "+
				"and orders close late if its memory is too small for them", r.rawValue(path), FormatDuration(maxSmallestBucket)),
			"add a bucket of 1m or less, such as 10s")
	}
}

func (r *reader) checkDelays(s *settings) {
	if s.MaxDelay > wire.MaxDelayLimit {
		r.refuse("delays.max", r.at["delays.max"], fmt.Sprintf("%s is longer than any order may wait, %s",
			FormatDuration(s.MaxDelay), FormatDuration(wire.MaxDelayLimit)), "shorten it")
		return
	}
	if d := s.Delays.Default; d > s.MaxDelay && r.at["delays.default"] == nil {
		r.refuse("delays.max", r.at["delays.max"], fmt.Sprintf("%s is shorter than delays.default, %s", FormatDuration(s.MaxDelay), FormatDuration(d)),
			"raise it or set delays.default")
	} else {
		r.atMostMax(s, "delays.default", d)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Delays.ByCategory)) {
		r.atMostMax(s, "delays.categories."+name, s.Delays.ByCategory[name])
	}
}

// atMostMax refuses a delay that is longer than delays.max.
func (r *reader) atMostMax(s *settings, path string, d time.Duration) {
	if d > s.MaxDelay {
		r.refuse(path, r.at[path], fmt.Sprintf("%s is longer than delays.max, %s", FormatDuration(d), FormatDuration(s.MaxDelay)), "shorten it or raise delays.max")
	}
}

// checkDueRules refuses delays that the row of an order does not decide: with due times by rule, the database knows an order's category and
// when it was created.
func (r *reader) checkDueRules(s *settings) {
	if !s.ByRule() {
		return
	}
	if at := r.at["orders.due.column"]; at != nil {
		r.refuse("orders.due.column", at, "from is given too", "keep column if the shop writes due times, or from if it does not")
	}
	decides := func(rule orderclose.Rule) bool { return rule.After > 0 || rule.Never }
	for i, rule := range s.Delays.Rules {
		if path := RulePath(i); len(rule.Match.Attributes) > 0 && slices.ContainsFunc(s.Delays.Rules[i:], decides) {
			r.refuse(path+".match.attributes", r.node(path+".match.attributes", path),
				"with orders.due.from, a due time depends on the category and the time of creation only",
				"match by category, put the rule behind those with after, or map a due column that the shop writes")
		}
	}
}

// node returns the first of the values that is in the file, or else the root.
func (r *reader) node(paths ...string) *yaml.Node {
	for _, path := range paths {
		if n := r.at[path]; n != nil {
			return n
		}
	}
	return r.root
}

// rawValue returns the value at path as the file has it.
func (r *reader) rawValue(path string) string { return resolveAlias(r.at[path]).Value }

// anyBad reports whether the value at path, or a value under it, was refused.
func (r *reader) anyBad(path string) bool {
	for p := range r.bad {
		if isUnder(p, path) {
			return true
		}
	}
	return false
}

// isUnder reports whether path is a key, or a value under it.
func isUnder(path, key string) bool {
	rest, under := strings.CutPrefix(path, key)
	return under && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
