package ops

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
)

// DelayAnswer says when an order closes by topics.yaml, and which key of topics.yaml decides.
type DelayAnswer struct {
	Rule      string      `json:"rule,omitempty"`     // the rule that matches, such as delays.rules[1]; "": none
	Line      int         `json:"line,omitempty"`     // of the rule
	Says      string      `json:"says,omitempty"`     // the rule in words
	Delay     string      `json:"delay,omitempty"`    // from the creation to the close; "": never
	DelayOf   string      `json:"delay_of,omitempty"` // the key with the delay, such as delays.categories.virtual
	Category  string      `json:"category,omitempty"` // that decides
	Unknown   []string    `json:"unknown_categories,omitempty"`
	Never     bool        `json:"never"`      // the order is never closed
	CreatedAt time.Time   `json:"created_at"` // of the order
	Due       time.Time   `json:"due_at"`     // orderclose.NeverDue: never
	Deadline  time.Time   `json:"deadline_at,omitzero"`
	Reminders []time.Time `json:"reminders,omitempty"`
}

// ExplainDelay applies delays to an order. Pure.
func ExplainDelay(d orderclose.Delays, facts orderclose.Facts) DelayAnswer {
	f := d.For(facts)
	a := DelayAnswer{Category: f.Category, Unknown: f.Unknown, Never: f.Never, CreatedAt: facts.CreatedAt.UTC(), Due: f.Due.UTC()}
	a.DelayOf = "delays.default"
	if _, listed := d.ByCategory[f.Category]; listed {
		a.DelayOf = "delays.categories." + f.Category
	}
	_, delay, _ := d.Of(facts.Categories...)
	if f.Rule != orderclose.NoRule {
		rule := d.Rules[f.Rule]
		a.Rule, a.Line, a.Says = config.RulePath(f.Rule), rule.Line, config.DescribeRule(rule)
		if rule.After > 0 {
			delay, a.DelayOf = rule.After, a.Rule+".after"
		}
	}
	if f.Never {
		a.DelayOf = ""
		return a
	}
	a.Delay, a.Deadline = config.FormatDuration(delay), f.Shown.UTC()
	for _, before := range f.Remind {
		a.Reminders = append(a.Reminders, a.Deadline.Add(-before))
	}
	return a
}

// delayTolerance is how far the due time of a row may differ from the one that the row's creation gives: columns are rounded to seconds.
const delayTolerance = time.Second

// OrderDelay says when an order would close if it was written with the present delays.
type OrderDelay struct {
	DelayAnswer
	// Differs says that the order's row has another due time.
	Differs bool
}

// ExplainOrder applies delays to the row of an order. It returns nil if the row does not say when the order was created. Pure.
func ExplainOrder(d orderclose.Delays, o store.OrderRow) *OrderDelay {
	if o.CreatedAt.IsZero() {
		return nil
	}
	facts := orderclose.Facts{CreatedAt: o.CreatedAt, Attributes: o.Attributes}
	if o.Category != "" {
		facts.Categories = []string{o.Category}
	}
	e := &OrderDelay{DelayAnswer: ExplainDelay(d, facts)}
	e.Differs = e.Never != orderclose.IsNever(o.Due) || !e.Never && e.Due.Sub(o.Due).Abs() > delayTolerance
	return e
}
