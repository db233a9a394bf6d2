package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestOutboxReport_HasTheLargestCost(t *testing.T) {
	r := outboxReport{
		costs:    []checkoutCost{{1, 500, 430, 16.28}, {8, 2000, 1700, 17.65}},
		dispatch: dispatched{500_000, 45_678.9},
	}
	var out, tables bytes.Buffer
	if err := r.print(&out, &tables); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(out.String()), `{"outbox_cost_percent":17.7,"dispatch_rps":45679}`; got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	for _, want := range []string{"16.3 %", "17.6 %", "45679"} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("the table has no %s:\n%s", want, tables.String())
		}
	}
}
