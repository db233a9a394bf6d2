package orderclose_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// withRules returns delays with rules.
func withRules(rules ...orderclose.Rule) orderclose.Delays {
	d := delays
	d.Rules = rules
	return d
}

// match returns a Match of one attribute.
func match(name string, values ...string) orderclose.Match {
	return orderclose.Match{Attributes: map[string][]string{name: values}}
}

var made = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestFor_AppliesTheFirstRuleThatMatches(t *testing.T) {
	reminders := []time.Duration{10 * time.Minute, 2 * time.Minute}
	d := withRules(
		orderclose.Rule{Match: match("pay", "bank", "cheque"), Never: true},
		orderclose.Rule{Match: orderclose.Match{Categories: []string{"virtual"}, Attributes: map[string][]string{"pay": {"card"}, "vip": {"true"}}}, After: time.Hour,
			Grace: 5 * time.Minute, Remind: reminders},
		orderclose.Rule{Match: orderclose.Match{Categories: []string{"virtual", "coupon"}}, Grace: time.Minute},
		orderclose.Rule{Match: match("shop", "3"), After: 2 * time.Minute},
		orderclose.Rule{Match: match("shop", "20000000"), After: time.Hour},
	)
	for _, row := range []struct {
		name       string
		categories []string
		attributes map[string]any
		rule       int
		due, shown time.Duration
		remind     []time.Duration
	}{
		{"no rule matches", []string{"physical"}, map[string]any{"pay": "card"}, orderclose.NoRule, 30 * time.Minute, 30 * time.Minute, nil},
		{"no attributes", nil, nil, orderclose.NoRule, 15 * time.Minute, 15 * time.Minute, nil},
		{"all conditions hold", []string{"virtual"}, map[string]any{"pay": "card", "vip": true, "more": 1}, 1, time.Hour, 55 * time.Minute, reminders},
		{"one of two conditions", []string{"virtual"}, map[string]any{"pay": "card"}, 2, 5 * time.Minute, 4 * time.Minute, nil},
		{"the category that decides is compared", []string{"physical", "virtual"}, nil, 2, 5 * time.Minute, 4 * time.Minute, nil},
		{"another category does not count", []string{"physical", "toy"}, nil, orderclose.NoRule, 15 * time.Minute, 15 * time.Minute, nil},
		{"a whole number", nil, map[string]any{"shop": int64(3)}, 3, 2 * time.Minute, 2 * time.Minute, nil},
		{"a number of JSON", nil, map[string]any{"shop": json.Number("3")}, 3, 2 * time.Minute, 2 * time.Minute, nil},
		{"another number of JSON", nil, map[string]any{"shop": 20000000.0}, 4, time.Hour, time.Hour, nil},
		{"bytes of a driver", nil, map[string]any{"shop": []byte("3")}, 3, 2 * time.Minute, 2 * time.Minute, nil},
		{"nil is no value", nil, map[string]any{"shop": nil}, orderclose.NoRule, 15 * time.Minute, 15 * time.Minute, nil},
		{"another letter case", []string{"physical"}, map[string]any{"pay": "Bank"}, orderclose.NoRule, 30 * time.Minute, 30 * time.Minute, nil},
	} {
		got := d.For(orderclose.Facts{CreatedAt: made, Categories: row.categories, Attributes: row.attributes})
		category, _, unknown := d.Of(row.categories...)
		want := orderclose.Deadline{Category: category, Unknown: unknown, Rule: row.rule, Due: made.Add(row.due), Shown: made.Add(row.shown), Remind: row.remind}
		diff := cmp.Diff(want, got)
		expect.That(t, diff == "", "%s (-want +got):\n%s", row.name, diff)
	}
	got := d.For(orderclose.Facts{CreatedAt: made, Categories: []string{"virtual"}, Attributes: map[string]any{"pay": "bank", "vip": true}})
	if want := (orderclose.Deadline{Category: "virtual", Rule: 0, Never: true, Due: orderclose.NeverDue}); !cmp.Equal(want, got) {
		t.Errorf("never (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func TestFor_RoundsTheDueTimeUpToTheMillisecond(t *testing.T) {
	got := withRules(orderclose.Rule{After: time.Minute, Grace: time.Second}).For(orderclose.Facts{CreatedAt: made.Add(time.Nanosecond)})
	want := made.Add(time.Minute + time.Millisecond)
	expect.That(t, got.Due.Equal(want) && got.Shown.Equal(want.Add(-time.Second)), "due %v, shown %v", got.Due, got.Shown)
}

func TestFor_WithoutADefaultAnOrderHasHalfAnHour(t *testing.T) {
	listed := orderclose.Delays{ByCategory: map[string]time.Duration{"virtual": time.Hour}}
	for _, d := range []orderclose.Delays{{}, listed} {
		for _, categories := range [][]string{nil, {"toy"}, {"virtual", "toy"}} {
			got := d.For(orderclose.Facts{CreatedAt: made, Categories: categories})
			expect.That(t, got.Due.Equal(made.Add(30*time.Minute)), "%v of %v: due %v", categories, d, got.Due)
		}
	}
	if got := (orderclose.Delays{}).Longest(); got != 30*time.Minute {
		t.Errorf("the longest delay: %v", got)
	}
}

func TestLongest_CountsRules(t *testing.T) {
	d := withRules(orderclose.Rule{Match: match("pay", "bank"), After: 48 * time.Hour}, orderclose.Rule{Match: match("pay", "cheque"), Never: true})
	if got := d.Longest(); got != 48*time.Hour {
		t.Errorf("got %v", got)
	}
	if got := withRules().Longest(); got != 30*time.Minute {
		t.Errorf("without rules: %v", got)
	}
}

func TestIsNever_HoldsInEveryZone(t *testing.T) {
	for _, never := range []time.Time{
		orderclose.NeverDue, orderclose.NeverDue.In(time.FixedZone("", 14*3600)),
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.FixedZone("", 14*3600)), time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600)),
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*3600)),
	} {
		expect.That(t, orderclose.IsNever(never), "%v closes", never)
	}
	for _, due := range []time.Time{{}, made, time.Date(9998, 12, 30, 23, 59, 59, 0, time.UTC)} {
		expect.That(t, !orderclose.IsNever(due), "%v never closes", due)
	}
}

// TestFor_TheFirstMatchDecides: for random rules, the rule of an order matches, no earlier rule does, and rules behind it change nothing.
func TestFor_TheFirstMatchDecides(t *testing.T) {
	values := rapid.SampledFrom([]string{"a", "b", "c"})
	some := rapid.SliceOfNDistinct(values, 1, 3, rapid.ID[string])
	rule := rapid.Custom(func(t *rapid.T) orderclose.Rule {
		r := orderclose.Rule{Never: rapid.Bool().Draw(t, "never")}
		if !r.Never {
			r.After = time.Duration(rapid.IntRange(0, 99).Draw(t, "after")) * time.Minute
		}
		if rapid.Bool().Draw(t, "by category") {
			r.Match.Categories = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"virtual", "physical", "coupon"}), 1, 2, rapid.ID[string]).Draw(t, "categories")
		}
		r.Match.Attributes = rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), some, 0, 2).Draw(t, "attributes")
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		d := withRules(rapid.SliceOfN(rule, 0, 8).Draw(t, "rules")...)
		f := orderclose.Facts{CreatedAt: made, Attributes: map[string]any{}}
		if c := rapid.SampledFrom([]string{"", "virtual", "physical", "toy"}).Draw(t, "category"); c != "" {
			f.Categories = []string{c}
		}
		for name, v := range rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), values, 0, 2).Draw(t, "order") {
			f.Attributes[name] = v
		}
		got := d.For(f)
		holds := func(r orderclose.Rule) bool {
			ok := len(r.Match.Categories) == 0 || slices.Contains(r.Match.Categories, got.Category)
			for name, values := range r.Match.Attributes {
				v, _ := f.Attributes[name].(string)
				ok = ok && slices.Contains(values, v)
			}
			return ok
		}
		var want []int
		for i, r := range d.Rules {
			if holds(r) {
				want = append(want, i)
			}
		}
		if want = append(want, orderclose.NoRule); got.Rule != want[0] {
			t.Fatalf("rule %d decides, and %d is the first that matches", got.Rule, want[0])
		}
		if got.Rule != orderclose.NoRule {
			alone := withRules(d.Rules[got.Rule]).For(f)
			if alone.Rule = got.Rule; !cmp.Equal(alone, got) {
				t.Fatalf("other rules change what rule %d gives:\n%s", got.Rule, cmp.Diff(alone, got))
			}
		}
	})
}
