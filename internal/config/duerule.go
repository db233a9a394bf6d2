package config

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// dueFrom reads the column of the time of creation, from which due times are computed.
func dueFrom(m *mapping.Mapping) parser {
	return func(r *reader, path string, n *yaml.Node) {
		m.ByRule = true
		text(&m.Due.Column)(r, path, n)
	}
}

// checkDueRules refuses delays that the row of an order does not decide: with due times by rule, the database knows an order's category and
// when it was created.
func (r *reader) checkDueRules(s *settings) {
	if s.Orders == nil || !s.Orders.ByRule || r.anyBad("orders.due") {
		return
	}
	if at := r.at["orders.due.column"]; at != nil {
		r.refuse("orders.due.column", at, "from is given too", "keep column if the shop writes due times, or from if it does not")
	}
	decides := func(rule orderclose.Rule) bool { return rule.After > 0 || rule.Never }
	for i, rule := range s.Delays.Rules {
		if path := RulePath(i); len(rule.Match.Attributes) > 0 && slices.ContainsFunc(s.Delays.Rules[i:], decides) && !r.anyBad(path) {
			r.refuse(path+".match.attributes", r.node(path+".match.attributes", path), "with orders.due.from, a due time depends on the category and the time of creation only",
				"match by category, put the rule behind those with after or never, or map a due column that the shop writes")
		}
	}
}
