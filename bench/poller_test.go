package main

import (
	"slices"
	"testing"
	"time"
)

func TestBurstSides_ReadsPollersAndRounds(t *testing.T) {
	environ := map[string]string{"SIDES": "pipeline poller-30s cron", "ROUNDS": "5"}
	sides, rounds, err := burstSides(func(name string) string { return environ[name] }, 3)
	want := []burstSide{{name: "pipeline"}, {name: "poller-30s", poll: 30 * time.Second}, {name: "cron", poll: time.Minute, cron: true}}
	if err != nil || rounds != 5 || !slices.Equal(sides, want) {
		t.Errorf("%v, %d rounds, %v", sides, rounds, err)
	}
	for name, value := range map[string]string{"SIDES": "poller", "ROUNDS": "none"} {
		if _, _, err := burstSides(func(n string) string { return map[string]string{name: value}[n] }, 3); err == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
}

func TestBurstsReport_HasTheMediansAndEveryTurn(t *testing.T) {
	r := burstsReport{orders: 9, sides: []burstSide{{name: "pipeline"}, {name: "poller-1s", poll: time.Second}, {name: "cron", poll: time.Minute}}, turns: map[string][]orderBurst{
		"pipeline":  {{last: time.Second}, {last: 2 * time.Second}, {last: 3 * time.Second}},
		"poller-1s": {{last: 4 * time.Second}}, "cron": {{last: time.Minute}},
	}}
	j := r.json()
	if j.Pipeline.LastS != 2 || j.Poller.LastS != 4 || j.Ratio != 2 || len(j.Turns) != 5 || j.Turns[4].Side != "cron" || j.Turns[4].LastS != 60 {
		t.Errorf("%+v", j)
	}
}
