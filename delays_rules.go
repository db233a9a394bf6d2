package orderclose

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// NeverDue is the due time of an order that is never closed, for a column that cannot be NULL. Any
// time in the year 9999 or later means never, in every time zone of a column.
var NeverDue = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// neverFrom is when the year 9999 begins in the first time zone.
var neverFrom = time.Date(9999, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*60*60))

// IsNever reports whether due is the due time of an order that is never closed.
func IsNever(due time.Time) bool { return !due.Before(neverFrom) }

// Rule gives some orders another deadline than their category does.
type Rule struct {
	Match Match
	// After is the time from an order's creation to its close. 0: the delay of the order's category.
	After time.Duration
	// Never says that the order is never closed. The other fields but Match and Line are then 0.
	Never bool
	// Grace is how long before the close the deadline is that the customer sees.
	Grace time.Duration
	// Remind lists how long before that deadline the customer is reminded, the longest first.
	Remind []time.Duration
	// Line is the rule's line in topics.yaml, from 1; 0 if the rule is not from a file.
	Line int `json:"-"`
}

// Match selects orders. An order matches if each condition holds. The zero value matches every order.
type Match struct {
	// Categories holds if the category that decides the order's delay is one of them. Empty: any.
	Categories []string
	// Attributes holds if, for each name, the order has the attribute and its text is one of the values.
	// A number or boolean has its usual text: 3, true.
	Attributes map[string][]string
}

// NoRule is the index of a rule for an order that no rule matches.
const NoRule = -1

// Facts are what the deadline of an order depends on.
type Facts struct {
	CreatedAt  time.Time
	Categories []string       // as for Delays.Of
	Attributes map[string]any // may be nil
}

// Deadline says when an order closes, and why.
type Deadline struct {
	Category string   // the category that decided the delay; write it with the order
	Unknown  []string // categories that are not in Delays.ByCategory
	Rule     int      // the index of the rule in Delays.Rules, or NoRule
	Never    bool     // the order is never closed: Due is NeverDue, and Shown is zero
	// Due is when the order closes if it is unpaid, in whole milliseconds. It is the due time of the
	// order's row and record.
	Due time.Time
	// Shown is the deadline that the customer sees: Due without the grace of the rule.
	Shown time.Time
	// Remind lists how long before Shown the customer is reminded, the longest first.
	Remind []time.Duration
}

// For returns the deadline of an order. It is applied when the order is written: write Due with the
// order, and never compute it again. The first rule that matches decides, and without a rule the delay
// of the categories. It is a pure function.
func (d Delays) For(f Facts) Deadline {
	category, delay, unknown := d.Of(f.Categories...)
	deadline := Deadline{Category: category, Unknown: unknown, Rule: d.RuleOf(category, f.Attributes)}
	var rule Rule
	if deadline.Rule != NoRule {
		rule = d.Rules[deadline.Rule]
	}
	if rule.Never {
		deadline.Never, deadline.Due = true, NeverDue
		return deadline
	}
	if rule.After > 0 {
		delay = rule.After
	}
	deadline.Due = CeilMilli(f.CreatedAt.Add(delay))
	deadline.Shown, deadline.Remind = deadline.Due.Add(-rule.Grace), rule.Remind
	return deadline
}

// RuleOf returns the index of the first rule that matches an order, or NoRule. category is the one that
// decided the order's delay, as For returns it and the order's row keeps it.
func (d Delays) RuleOf(category string, attributes map[string]any) int {
	return slices.IndexFunc(d.Rules, func(r Rule) bool { return r.Match.Matches(category, attributes) }) //mutant:last-rule-decides
}

// Longest returns the longest delay of any order, by category or by a rule.
func (d Delays) Longest() time.Duration {
	_, longest, _ := d.Of()
	for _, own := range d.ByCategory {
		longest = max(longest, own)
	}
	for _, rule := range d.Rules {
		longest = max(longest, rule.After)
	}
	return longest
}

// Matches reports whether an order with this category and these attributes matches.
func (m Match) Matches(category string, attributes map[string]any) bool {
	if len(m.Categories) > 0 && !slices.Contains(m.Categories, category) {
		return false
	}
	for name, values := range m.Attributes {
		value, has := attributes[name]
		if !has || !slices.Contains(values, attributeText(value)) {
			return false
		}
	}
	return true
}

// attributeText returns the text of an attribute. Decoded JSON has float64, and a database driver may give bytes.
func attributeText(value any) string {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
