//go:build linux

package main

import (
	"encoding/csv"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func allKinds(t *testing.T) []kind {
	t.Helper()
	all, missing := kinds(variant{}, true, func(string) bool { return true })
	must.That(t, len(missing) == 0, "missing %v", missing)
	return all
}

func TestSchedule_TenMinutesHaveSixtyFaultsOfTwentyFiveKinds(t *testing.T) {
	for seed := range uint64(200) {
		all := drawSchedule(seed, allKinds(t), 10*time.Minute, defaultPerMinute)
		kinds := map[string]bool{}
		for _, e := range all {
			kinds[e.Kind] = true
		}
		expect.That(t, len(all) >= 60 && len(kinds) >= 25, "seed %d: %d faults of %d kinds", seed, len(all), len(kinds))
	}
}

// Also on a machine where no clock can be stepped and no disk filled, and in rounds that delete no records.
func TestSchedule_PoorMachinesAndRoundsWithoutLossesHaveEnoughKinds(t *testing.T) {
	all, missing := kinds(variant{}, false, func(string) bool { return false })
	expect.That(t, len(missing) != 0, "no kind needs anything")
	for _, k := range all {
		expect.That(t, !k.loses && k.needs == "", "%s loses records or needs %q", k.name, k.needs)
	}
	used := map[string]bool{}
	for _, e := range drawSchedule(1, all, 10*time.Minute, defaultPerMinute) {
		used[e.Kind] = true
	}
	expect.That(t, len(used) >= 25, "%d kinds", len(used))
}

func TestSchedule_IsThatOfItsSeed(t *testing.T) {
	draw := func(seed uint64) []event { return drawSchedule(seed, allKinds(t), 10*time.Minute, 6) }
	expect.That(t, reflect.DeepEqual(draw(7), draw(7)), "the same seed draws different faults")
	expect.That(t, !reflect.DeepEqual(draw(7), draw(8)), "different seeds draw the same faults")
}

func TestSchedule_KeepsItsTimesAndVisitsAKindAgainAfterAllOthers(t *testing.T) {
	const over = 30 * time.Minute
	all := allKinds(t)
	bounds := map[string]kind{}
	for _, k := range all {
		bounds[k.name] = k
	}
	counts := map[string]int{}
	last := time.Duration(0)
	for n, e := range drawSchedule(3, all, over, 12) {
		k := bounds[e.Kind]
		expect.That(t, e.At >= max(warmUp, last) && e.At <= over-coolDown && e.For >= k.least && e.For <= k.most, "%+v after %v", e, last)
		last = e.At
		if counts[e.Kind]++; counts[e.Kind] > n/len(all)+1 {
			t.Errorf("%s comes the %d-th time as fault %d", e.Kind, counts[e.Kind], n)
		}
	}
}

func TestKinds_AreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, k := range allKinds(t) {
		expect.That(t, !names[k.name] && k.name != "" && k.does != "" && k.on != "" && k.play != nil && k.least > 0 && k.most >= k.least, "%+v", k)
		names[k.name] = true
	}
	expect.That(t, len(names) >= 60, "%d kinds", len(names))
}

// docs/data/faults.csv lists the kinds, those of the stages once. UPDATE_GOLDEN=1 writes it.
func TestKinds_AreThoseOfTheDocuments(t *testing.T) {
	const file = "../../../docs/data/faults.csv"
	rows := [][]string{{"kind", "what happens, and how it is undone"}}
	for _, k := range slices.Concat(allKinds(t), powerKinds(variant{brokers: 3}), powerKinds(variant{brokers: 1})) {
		name := k.name
		for _, role := range roles {
			if strings.HasPrefix(k.does, "one process") {
				name = strings.Replace(name, "-"+role, "-STAGE", 1)
			}
		}
		if row := []string{name, k.does}; !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r, row) }) {
			rows = append(rows, row)
		}
	}
	var want strings.Builder
	must.Do(t, csv.NewWriter(&want).WriteAll(rows))
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(file, []byte(want.String()), 0o644))
	}
	expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), want.String(), "docs/data/faults.csv, which UPDATE_GOLDEN=1 writes, is")
}
