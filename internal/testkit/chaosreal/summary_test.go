//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// aRound is a minute with two faults, one of which makes the orders of six seconds late.
func aRound() *round {
	began := time.UnixMilli(1_700_000_000_000)
	v := &checker.Verdict{Orders: 600, ByPath: map[string]int{"pipeline": 590, "sweep": 10}}
	for n := range 600 {
		s := checker.Sample{Due: began.Add(time.Duration(n) * 100 * time.Millisecond), Late: 20 * time.Millisecond, Path: "pipeline"}
		if n >= 230 && n < 290 {
			s.Late = 5 * time.Second
		}
		v.Samples = append(v.Samples, s)
	}
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	return &round{began: began, over: time.Minute, verdict: v, exits: 1, acts: map[string]int{"created": 6000, "paid": 600, "published": 3000}, played: []played{
		{Kind: "kill-relay", From: at(22), To: at(25)},
		{Kind: "pause-closer", From: at(40), To: at(41)},
	}}
}

func TestSummary_HasTheFiguresOfAllRounds(t *testing.T) {
	sum := summarize(settings{seed: 4, minutes: 2, database: postgreSQL, variant: variant{secured: true, mapped: true}}, []*round{aRound(), aRound()},
		[]string{"full-disk-broker"})
	expect.That(t, sum.Orders == 1200 && sum.TotalFaults == 4 && sum.Faults["kill-relay"] == 2 && sum.Exits == 2 && sum.PerSecond == 110, "%+v", sum)
	expect.Equal(t, sum.Variant, "TLS and SASL, mapped tables", "variant")
	expect.That(t, sum.Lateness["max"] == 5000 && sum.Lateness["p50"] == 20, "lateness %v", sum.Lateness)
	expect.NoError(t, sum.err())
	var fields map[string]any
	text, err := json.Marshal(sum)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for _, name := range []string{"database", "variant", "orders", "faults", "early", "lost", "double", "open", "lateness_ms"} {
		_, ok := fields[name]
		expect.That(t, ok && err == nil, "no %s in %s, %v", name, text, err)
	}
}

func TestSummary_AFaultThatWasNotPlayedDoesNotCount(t *testing.T) {
	r := aRound()
	r.played[0].Err = errors.New("it does not start")
	sum := summarize(settings{database: mariadb}, []*round{r}, nil)
	if sum.TotalFaults != 1 || sum.Faults["kill-relay"] != 0 || len(sum.FailedFaults) != 1 || !strings.Contains(sum.FailedFaults[0], "it does not start") {
		t.Errorf("%+v", sum)
	}
}

// While the clock of the database is 30 s ahead, orders are closed that are due by it.
func TestSummary_LeavesOutWhatAWrongClockHasMeasured(t *testing.T) {
	r := aRound()
	r.played = append(r.played, played{Kind: "database-clock-ahead", From: r.began.Add(5 * time.Second), To: r.began.Add(8 * time.Second), Step: 30 * time.Second})
	wrong := &r.verdict.Samples[60] // due after 6 s, closed after 7 s, when that clock says 37 s
	wrong.Late = 31 * time.Second
	sum := summarize(settings{database: mariadb}, []*round{r}, nil)
	// Those that were closed between 35 s and 38 s are left out too, although they were right.
	expect.That(t, sum.Lateness["max"] == 5000 && sum.Lateness["n"] == 600-1-30, "lateness %v", sum.Lateness)
}

func TestSummary_ABrokenPromiseIsAnError(t *testing.T) {
	r := aRound()
	r.verdict.Violations, r.verdict.Early = []string{"1 orders were closed before they were due"}, 1
	sum := summarize(settings{database: mariadb}, []*round{r}, nil)
	expect.That(t, sum.err() != nil && sum.Early == 1, "%+v", sum)
}

func TestSettings_AreReadFromTheEnvironment(t *testing.T) {
	args := []string{"dir", "orderclose", "logs"}
	read := func(env map[string]string) (settings, error) {
		return readSettings(args, func(name string) string { return env[name] })
	}
	s, err := read(nil)
	if err != nil || s.minutes != 10 || s.seed != 1 || s.perMinute != defaultPerMinute || !s.losses || s.database != mariadb ||
		s.variant != (variant{brokers: 3}) {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = read(map[string]string{"MINUTES": "480", "SEED": "7", "FAULTS": "12", "LOSSES": "0", "KINDS": "pause,replay", "DATABASE": "mysql",
		"MAPPED": "1", "SECURED": "1"})
	if err != nil || s.variant != (variant{mapped: true, secured: true, brokers: 3}) || s.minutes != 480 || s.seed != 7 || s.perMinute != 12 || s.losses ||
		len(s.only) != 2 || s.database != mySQL {
		t.Errorf("%+v, %v", s, err)
	}
	for _, wrong := range []map[string]string{{"MINUTES": "ten"}, {"MINUTES": "0"}, {"SEED": "-1"}, {"DATABASE": "oracle"}, {"FAULTS": "0"},
		{"BROKERS": "2"}, {"BROKERS": "1"}} {
		_, err := read(wrong)
		expect.That(t, err != nil, "%v is accepted", wrong)
	}
	s, err = read(map[string]string{"POWER": "1", "BROKERS": "1", "SYNC": "never"})
	expect.That(t, err == nil && s.variant == (variant{power: true, brokers: 1, sync: "never"}) && s.perMinute == powerPerMinute && !s.variant.synced(),
		"%+v, %v", s, err)
	args = append(args, "other")
	if s, err := read(nil); err != nil || s.variant.other != "other" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := readSettings(nil, func(string) string { return "" }); err == nil {
		t.Error("no arguments are accepted")
	}
}
