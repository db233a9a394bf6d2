package ops

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestExplainOrder_ComparesTheRowWithTheRules(t *testing.T) {
	d := orderclose.Delays{Default: time.Hour, ByCategory: map[string]time.Duration{"virtual": 10 * time.Minute}, Rules: []orderclose.Rule{
		{Match: orderclose.Match{Attributes: map[string][]string{"pay": {"bank"}}}, Never: true},
		{Match: orderclose.Match{Categories: []string{"virtual"}, Attributes: map[string][]string{"vip": {"1"}}}, Grace: time.Minute},
	}}
	row := func(category string, due time.Time, attributes map[string]any) store.OrderRow {
		return store.OrderRow{Category: category, CreatedAt: made, Due: due, Attributes: attributes}
	}
	bank, vip := map[string]any{"pay": "bank", "vip": 0}, map[string]any{"pay": "card", "vip": 1}
	for what, c := range map[string]struct {
		row     store.OrderRow
		rule    string
		differs bool
	}{
		"as its category":           {row("virtual", made.Add(10*time.Minute), nil), "", false},
		"rounded to a second":       {row("virtual", made.Add(10*time.Minute+time.Second), vip), "delays.rules[1]", false},
		"another due time":          {row("virtual", made.Add(11*time.Minute), vip), "delays.rules[1]", true},
		"no category":               {row("", made.Add(time.Hour), vip), "", false},
		"never, and so is its rule": {row("", orderclose.NeverDue, bank), "delays.rules[0]", false},
		"never, and its rule not":   {row("", orderclose.NeverDue, vip), "", true},
		"its rule is never":         {row("", made.Add(time.Hour), bank), "delays.rules[0]", true},
	} {
		got := ExplainOrder(d, c.row)
		expect.That(t, got.Rule == c.rule && got.Differs == c.differs, "%s: %+v, want %+v", what, got, c)
	}
	if got := ExplainOrder(d, store.OrderRow{Due: made}); got != nil {
		t.Errorf("it is not known when the order was created: %+v", got)
	}
}
