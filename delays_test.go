package orderclose_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var delays = orderclose.Delays{
	Default:    15 * time.Minute,
	ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute, "physical": 30 * time.Minute, "coupon": 5 * time.Minute},
}

func TestOf_PicksTheShortestDelay(t *testing.T) {
	for _, row := range []struct {
		name       string
		categories []string
		category   string
		delay      time.Duration
		unknown    []string
	}{
		{"no category", nil, "", 15 * time.Minute, nil},
		{"one category", []string{"physical"}, "physical", 30 * time.Minute, nil},
		{"one unknown category", []string{"gift"}, "gift", 15 * time.Minute, []string{"gift"}},
		{"the empty name is a category", []string{""}, "", 15 * time.Minute, []string{""}},
		{"shortest", []string{"physical", "virtual"}, "virtual", 5 * time.Minute, nil},
		{"equal delays: the first category decides", []string{"coupon", "virtual"}, "coupon", 5 * time.Minute, nil},
		{"an unknown category decides", []string{"physical", "gift"}, "gift", 15 * time.Minute, []string{"gift"}},
		{"an unknown category does not decide", []string{"gift", "virtual", "toy"}, "virtual", 5 * time.Minute, []string{"gift", "toy"}},
	} {
		category, delay, unknown := delays.Of(row.categories...)
		expect.That(t, category == row.category && delay == row.delay && cmp.Equal(unknown, row.unknown),
			"%s: got %q, %v, unknown %q; want %q, %v, unknown %q", row.name, category, delay, unknown, row.category, row.delay, row.unknown)
	}
}

func TestOf_TheDelayDoesNotDependOnTheOrderOfCategories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"virtual", "physical", "coupon", "gift"}), 1, 5).Draw(t, "categories")
		deciding, want, _ := delays.Of(names...)
		_, got, _ := delays.Of(rapid.Permutation(names).Draw(t, "other order")...)
		must.That(t, got == want, "%q: %v in one order and %v in another", names, want, got)
		_, alone, _ := delays.Of(deciding)
		must.That(t, alone == want, "%q: %q decides for %v, and alone has %v", names, deciding, want, alone)
		for _, name := range names {
			_, own, _ := delays.Of(name)
			must.That(t, own >= want, "%q: %v was picked, %s has %v", names, want, name, own)
		}
	})
}

func TestOf_WorksWithoutAnyCategoryConfigured(t *testing.T) {
	category, delay, unknown := orderclose.Delays{Default: time.Minute}.Of("a", "b")
	expect.That(t, category == "a" && delay == time.Minute && cmp.Equal(unknown, []string{"a", "b"}), "got %q, %v, %q", category, delay, unknown)
}
