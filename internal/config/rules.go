package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// maxRules bounds how many rules each order is compared with.
	maxRules = 100
	// maxCombinations bounds the combinations of values that one rule lists. Each is compared with all
	// earlier rules when the file is read.
	maxCombinations = 1000
	// maxReminders bounds the reminders of one rule. Each is a query of the database, again and again.
	maxReminders = 10
)

// RulePath returns the path of a rule of the list.
func RulePath(i int) string { return "delays.rules[" + strconv.Itoa(i) + "]" }

// rule is an entry of delays.rules.
type rule struct {
	Match struct {
		Category   []word            `yaml:"category" one:""`
		Attributes map[string][]word `yaml:"attributes" one:""`
	} `yaml:"match"`
	After  orNever         `yaml:"after"`
	Grace  time.Duration   `yaml:"grace"`
	Remind []time.Duration `yaml:"remind" example:"[10m, 2m]"`
}

// word is a text, or a whole number, of which it is the digits.
type word string

const wordHint = "write text in quotes or a whole number, each value once"

func (w *word) parse(raw *yaml.Node) (wrong, do string) {
	switch _, whole := wholeOf(raw); {
	case raw.ShortTag() != "!!str" && !whole:
		return quote(raw.Value) + " is neither text nor a whole number", ""
	case raw.Value == "":
		return "the value is empty", ""
	}
	*w = word(raw.Value)
	return "", ""
}

// orNever is the time until the close, or the word never.
type orNever struct {
	after time.Duration
	never bool
}

func parseOrNever(text string) (orNever, error) {
	if text == "never" {
		return orNever{never: true}, nil
	}
	d, err := ParseDuration(text)
	return orNever{after: d}, err
}

// rule returns the Rule of an entry. Its first reminder is the one that is sent first.
func (f rule) rule(r *reader, path string) orderclose.Rule {
	rule := orderclose.Rule{After: f.After.after, Never: f.After.never, Grace: f.Grace, Line: r.at[path].Line}
	rule.Match.Categories = r.values(path+".match.category", f.Match.Category)
	for _, name := range slices.Sorted(maps.Keys(f.Match.Attributes)) {
		if rule.Match.Attributes == nil {
			rule.Match.Attributes = map[string][]string{}
		}
		rule.Match.Attributes[name] = r.values(path+".match.attributes."+name, f.Match.Attributes[name])
	}
	rule.Remind = slices.SortedFunc(slices.Values(f.Remind), func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return rule
}

// values returns the values of a list. It refuses a list without a value, and a value that is listed twice.
func (r *reader) values(path string, list []word) (values []string) {
	if r.at[path] != nil && !r.bad[path] && len(list) == 0 {
		r.refuse(path, r.at[path], "lists no value", "list one, or remove the key")
	}
	for i, v := range list {
		if v != "" && slices.Contains(list[:i], v) {
			at := fmt.Sprintf("%s[%d]", path, i)
			r.refuse(at, r.at[at], quote(string(v))+" is listed twice", wordHint)
		}
		values = append(values, string(v))
	}
	return values
}

// checkRules finds rules that contradict themselves, the delays or earlier rules.
func (r *reader) checkRules(s *settings) {
	rules := s.Delays.Rules
	if len(rules) > maxRules {
		r.refuse("delays.rules", r.at["delays.rules"], fmt.Sprintf("%d rules, at most %d", len(rules), maxRules),
			"put values of rules with the same deadline into one list")
		return
	}
	for i := range rules {
		r.checkRule(s, i, RulePath(i))
	}
	r.checkReminders(s)
}

// checkReminders refuses attributes that the row of an order does not have, in rules with reminders and in rules
// before them for the same categories. Reminders are found by the row: from it, the rule of an order must be the
// same as when the order was written. A rule with after: never changes no reminder.
func (r *reader) checkReminders(s *settings) {
	for i, rule := range s.Delays.Rules {
		if !slices.ContainsFunc(s.Delays.Rules[i:], func(later orderclose.Rule) bool {
			return len(later.Remind) > 0 && (len(rule.Match.Categories) == 0 || len(later.Match.Categories) == 0 ||
				slices.ContainsFunc(rule.Match.Categories, func(c string) bool { return slices.Contains(later.Match.Categories, c) }))
		}) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(rule.Match.Attributes)) {
			path, do := RulePath(i)+".match.attributes."+name, "name its column in orders.attributes"
			if s.Orders == nil {
				do = "match by category, or map your own tables in orders"
			}
			mapped := s.Orders != nil && slices.ContainsFunc(s.Orders.Attributes, func(a mapping.Attribute) bool { return a.Name == name })
			if !rule.Never && !mapped && !r.anyBad(RulePath(i)) {
				r.refuse(path, r.at[path], "a reminder is found by the order's row, which does not have this attribute", do)
			}
		}
	}
}

func (r *reader) checkRule(s *settings, i int, path string) {
	rule := s.Delays.Rules[i]
	refuse := func(name, what, do string) { r.refuse(path+"."+name, r.node(path+"."+name, path), what, do) }
	const write = "write match: {category: virtual}, or match: {} for every order"
	match, conditions := r.at[path+".match"], len(rule.Match.Categories)+len(rule.Match.Attributes)
	switch {
	case match == nil:
		refuse("match", "is missing", write)
	case conditions == 0 && (resolveAlias(match).Kind != yaml.MappingNode || len(resolveAlias(match).Content) > 0):
		refuse("match", "has no condition", write)
	case !rule.Never && rule.After+rule.Grace == 0 && len(rule.Remind) == 0:
		r.refuse(path, r.at[path], "the rule changes nothing", "add after, grace or remind")
	case len(rule.Remind) > maxReminders:
		refuse("remind", fmt.Sprintf("%d reminders, at most %d", len(rule.Remind), maxReminders), "remove some")
	case !r.unknownCategory(s, rule, path+".match.category"):
		r.checkLead(s, rule, path)
		r.checkShadow(s, i, path+".match")
	}
	for _, name := range []string{"grace", "remind"} {
		if rule.Never && r.at[path+"."+name] != nil {
			refuse(name, "an order that is never closed has no deadline", "remove "+name+", or write another after")
		}
	}
}

// unknownCategory refuses a category that has no delay: it may be misspelt, and metrics would not name it.
func (r *reader) unknownCategory(s *settings, rule orderclose.Rule, path string) bool {
	for j, c := range rule.Match.Categories {
		if _, known := s.Delays.ByCategory[c]; known {
			continue
		}
		do := "add it to delays.categories"
		if like := Closest(c, slices.Sorted(maps.Keys(s.Delays.ByCategory))); like != "" {
			do = "did you mean " + like + "? Otherwise " + do
		}
		r.refuse(path, r.node(fmt.Sprintf("%s[%d]", path, j), path), quote(c)+" is not in delays.categories", do)
		return true
	}
	return false
}

// checkLead compares grace and reminders of a rule with the shortest delay of the orders that match it.
func (r *reader) checkLead(s *settings, rule orderclose.Rule, path string) {
	after, of := rule.After, path+".after"
	if after == 0 {
		after, of = shortestDelay(s.Delays, rule.Match.Categories)
	} else {
		r.atLeast(s, of, after, time.Second, "an order would be closed before its customer has seen it")
		r.atMostMax(s, of, after)
	}
	if rule.Never || r.bad[of] {
		return
	}
	tooLong := func(d time.Duration, path, behind, do string) {
		r.refuse(path, r.at[path], fmt.Sprintf("%s is not shorter than %s, %s%s", FormatDuration(d), of, FormatDuration(after), behind), do)
	}
	if rule.Grace >= after {
		tooLong(rule.Grace, path+".grace", "", "shorten it: the customer sees the deadline this long before the close")
		return
	}
	without := ""
	if rule.Grace > 0 {
		without = ", without the grace of " + FormatDuration(rule.Grace)
	}
	seen := map[time.Duration]bool{}
	for i := range rule.Remind {
		at := fmt.Sprintf("%s.remind[%d]", path, i) // the list is sorted: compare what the file has here
		d, _ := ParseDuration(r.rawValue(at))
		if seen[d] {
			r.refuse(at, r.at[at], FormatDuration(d)+" is listed twice", "remove one")
		}
		seen[d] = true
		if r.atLeast(s, at, d, time.Second, "it would often not be written in time"); d >= after-rule.Grace {
			tooLong(d, at, without, "shorten it: a reminder comes this long before the deadline that the customer sees")
		}
	}
}

// shortestDelay returns the shortest delay of these categories, or of all orders, and its path.
func shortestDelay(d orderclose.Delays, categories []string) (shortest time.Duration, path string) {
	if len(categories) == 0 {
		shortest, path = d.Default, "delays.default"
		categories = slices.Sorted(maps.Keys(d.ByCategory))
	}
	for _, c := range categories {
		if own := d.ByCategory[c]; path == "" || own < shortest {
			shortest, path = own, "delays.categories."+c
		}
	}
	return shortest, path
}

// checkShadow refuses a rule that no order reaches, because earlier rules match each combination of the values that
// it lists. An order may have any value of what the rule does not list.
func (r *reader) checkShadow(s *settings, i int, path string) {
	for earlier := range i {
		if r.anyBad(RulePath(earlier)) {
			return // it may not match the same orders once it is right
		}
	}
	orders := combinations(s.Delays.Rules[i].Match)
	if orders == nil {
		r.refuse(path, r.at[path], fmt.Sprintf("its values have more than %d combinations", maxCombinations), "shorten the lists, or write several rules")
		return
	}
	by, earlier := orderclose.NoRule, orderclose.Delays{Rules: s.Delays.Rules[:i]}
	for _, o := range orders {
		first := earlier.RuleOf(o.Categories[0], o.Attributes)
		if by = max(by, first); first == orderclose.NoRule {
			return
		}
	}
	r.refuse(path, r.at[path], fmt.Sprintf("no order gets here: %s on line %d, or one before it, matches first", RulePath(by), s.Delays.Rules[by].Line),
		"put this rule before it, or remove it")
}

// combinations returns an order with each combination of the values that m lists; nil: there are more than
// maxCombinations. Without a category in m, the category is "", which no rule lists.
func combinations(m orderclose.Match) (all []orderclose.Facts) {
	for _, c := range append(slices.Clone(m.Categories), "")[:max(1, len(m.Categories))] {
		all = append(all, orderclose.Facts{Categories: []string{c}})
	}
	for name, values := range m.Attributes {
		if len(all)*len(values) > maxCombinations {
			return nil
		}
		before := all
		all = nil
		for _, o := range before {
			for _, v := range values {
				with := map[string]any{name: v}
				maps.Copy(with, o.Attributes)
				all = append(all, orderclose.Facts{Categories: o.Categories, Attributes: with})
			}
		}
	}
	return all
}

// ruleDelay begins the name that NamedDelays gives to the delay of a rule.
const ruleDelay = "rule "

// NamedDelays returns all delays of d: of each listed category by its name, of all others by "", and of each rule
// with a time of its own by the orders that it matches, such as "rule payment card".
func NamedDelays(d orderclose.Delays) map[string]time.Duration {
	all := map[string]time.Duration{"": d.Default}
	maps.Copy(all, d.ByCategory)
	for _, rule := range d.Rules {
		if rule.After > 0 {
			all[ruleDelay+describeMatch(rule.Match)] = rule.After
		}
	}
	return all
}

// describeMatch says which orders a rule matches.
func describeMatch(m orderclose.Match) string {
	var parts []string
	if c := m.Categories; len(c) > 0 {
		parts = append(parts, "category "+strings.Join(c, " or "))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		parts = append(parts, name+" "+strings.Join(m.Attributes[name], " or "))
	}
	return cmp.Or(strings.Join(parts, ", "), "every order")
}

// DescribeRule returns a rule in one line.
func DescribeRule(rule orderclose.Rule) string {
	what := describeMatch(rule.Match) + ":"
	if rule.Never {
		what += " never"
	}
	if rule.After > 0 {
		what += " after " + FormatDuration(rule.After)
	}
	if rule.Grace > 0 {
		what += " grace " + FormatDuration(rule.Grace)
	}
	if len(rule.Remind) > 0 {
		what += " remind"
	}
	for _, d := range rule.Remind {
		what += " " + FormatDuration(d)
	}
	return what
}
