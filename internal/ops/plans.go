package ops

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/topics"
)

// TopicsPlan is how the topics differ from topics.yaml, and what would be done about it.
type TopicsPlan struct {
	Topics int             `json:"topics"`    // that were compared
	Would  []kafka.Finding `json:"would_fix"` // that orderclose topics apply fixes
	Left   []kafka.Finding `json:"left"`      // that a person must fix
	// Durability says in words whether a loss of power loses acknowledged records.
	Durability string `json:"durability"`
}

// NewTopicsPlan divides the findings into those that topics apply would fix and those for a person. compared is the number of topics that were compared.
func NewTopicsPlan(cfg *config.Config, compared int, findings []kafka.Finding) TopicsPlan {
	p := TopicsPlan{Topics: compared, Would: []kafka.Finding{}, Left: []kafka.Finding{}, Durability: topics.Durability(cfg)}
	for _, f := range findings {
		if f.By == (kafka.Change{}) {
			p.Left = append(p.Left, f)
		} else {
			p.Would = append(p.Would, f)
		}
	}
	return p
}

// DelayPlan is the path of a record with a given delay, if nothing is late.
type DelayPlan struct {
	Delay   string `json:"delay"`
	Hops    []Hop  `json:"hops"` // in order
	Close   string `json:"close_topic"`
	Buckets int    `json:"bucket_appends"` // to delay topics
	// Appends includes the append to the close topic.
	Appends int `json:"appends"`
}

// Hop is a number of consecutive appends to the same bucket.
type Hop struct {
	Bucket string `json:"bucket"`
	Topic  string `json:"topic"`
	Times  int    `json:"times"`
}

// NewDelayPlan returns the path through the buckets, with consecutive equal buckets merged.
func NewDelayPlan(buckets orderclose.Buckets, closeTopic string, delay time.Duration) DelayPlan {
	walk := buckets.Walk(delay)
	p := DelayPlan{Delay: config.FormatDuration(delay), Hops: []Hop{}, Close: closeTopic, Buckets: len(walk), Appends: len(walk) + 1}
	for _, b := range walk {
		if n := len(p.Hops); n > 0 && p.Hops[n-1].Topic == b.Topic {
			p.Hops[n-1].Times++
			continue
		}
		p.Hops = append(p.Hops, Hop{orderclose.ShortDuration(b.Length), b.Topic, 1})
	}
	return p
}

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
