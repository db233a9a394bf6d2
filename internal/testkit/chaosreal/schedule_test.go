//go:build linux

package main

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func allKinds(t *testing.T) []kind {
	t.Helper()
	all, missing := kinds(variant{}, true, func(string) bool { return true })
	must.That(t, len(missing) == 0, "missing %v", missing)
	return all
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
