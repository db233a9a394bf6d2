//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// summary is the result of a run.
type summary struct {
	Database string  `json:"database"`
	Variant  string  `json:"variant"` // see variant.String
	Seed     uint64  `json:"seed"`
	Minutes  float64 `json:"minutes"`
	Rounds   int     `json:"rounds"`
	// Orders are those in the database. PerSecond are the acknowledged creations, payments, cancellations and moves in a second.
	Orders    int            `json:"orders"`
	PerSecond float64        `json:"per_second"`
	Acts      map[string]int `json:"acts"`
	// Faults are the faults that were played and undone, by kind.
	Faults      map[string]int `json:"faults"`
	TotalFaults int            `json:"total_faults"`
	// FailedFaults could not be played or not be undone: a broker did not start, or refused. They do
	// not count. What they did to the pipeline is judged as everything else.
	FailedFaults []string `json:"failed_faults"`
	Early        int      `json:"early"`
	Lost         int      `json:"lost"`
	Double       int      `json:"double"`
	Open         int      `json:"open"`
	// Lateness is that of all closed orders.
	Lateness map[string]float64 `json:"lateness_ms"`
	ByPath   map[string]int     `json:"closed"`
	// SettledSeconds is how long after the last due time and the last fault nothing was left to do;
	// of several rounds the longest. Looks counts how often the witness looked for early closes.
	SettledSeconds float64 `json:"settled_s"`
	Looks          int     `json:"looks"`
	// Exits counts the processes that ended by themselves and were started again.
	Exits int `json:"exits"`
	// NotTried are the kinds that this machine cannot play.
	NotTried   []string `json:"not_tried"`
	Violations []string `json:"violations"`
}

// summarize computes the summary of some rounds.
func summarize(s settings, rounds []*round, missing []string) *summary {
	sum := &summary{
		Database: s.database.name, Variant: s.variant.String(), Seed: s.seed, Minutes: s.minutes, Rounds: len(rounds),
		Acts: map[string]int{}, Faults: map[string]int{}, ByPath: map[string]int{},
		NotTried: append([]string{}, missing...), Violations: []string{}, FailedFaults: []string{},
	}
	var late []time.Duration
	var seconds float64
	for _, r := range rounds {
		v := r.verdict
		sum.Orders, sum.Early, sum.Lost, sum.Double, sum.Open = sum.Orders+v.Orders, sum.Early+v.Early, sum.Lost+v.Lost, sum.Double+v.Inconsistent, sum.Open+v.Open
		sum.Exits, sum.Looks = sum.Exits+r.exits, sum.Looks+r.looks
		sum.SettledSeconds = max(sum.SettledSeconds, r.settled.Seconds())
		sum.Violations = append(sum.Violations, v.Violations...)
		add(sum.Acts, r.acts)
		add(sum.ByPath, v.ByPath)
		seconds += r.over.Seconds()
		for _, p := range r.played {
			if p.Err != nil {
				sum.FailedFaults = append(sum.FailedFaults, fmt.Sprintf("%s: %.500v", p.Kind, p.Err))
				continue
			}
			sum.Faults[p.Kind]++
			sum.TotalFaults++
		}
		for _, sample := range r.trustworthy() {
			late = append(late, sample.Late)
		}
	}
	sum.Lateness = quantiles(late)
	for _, what := range []string{"created", "paid", "cancelled", "moved"} {
		sum.PerSecond += float64(sum.Acts[what]) / seconds
	}
	return sum
}

// trustworthy returns the samples without those whose time of closing lies where a clock of the database that was set off has put such times. While that
// clock is ahead, orders are closed that are due by it, and seem late by the whole step.
func (r *round) trustworthy() []checker.Sample {
	var stepped []span
	for _, p := range r.played {
		if p.Step != 0 {
			stepped = append(stepped, span{p.From.Add(p.Step), p.To.Add(p.Step)})
		}
	}
	return slices.DeleteFunc(slices.Clone(r.verdict.Samples), func(s checker.Sample) bool {
		return slices.ContainsFunc(stepped, func(t span) bool { return t.has(s.Due.Add(s.Late)) })
	})
}

// span is a time from one moment to another.
type span struct{ from, to time.Time }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

func add(to, from map[string]int) {
	for key, n := range from {
		to[key] += n
	}
}

// quantiles returns some quantiles in milliseconds.
func quantiles(all []time.Duration) map[string]float64 {
	ms := func(q float64) float64 { return float64(checker.Quantile(all, q).Microseconds()) / 1000 }
	return map[string]float64{"n": float64(len(all)), "p50": ms(0.5), "p90": ms(0.9), "p99": ms(0.99), "max": ms(1)}
}

// err returns an error if the run was not clean.
func (s *summary) err() error {
	if len(s.Violations) > 0 {
		return errors.New("promises were broken")
	}
	return nil
}

// print prints the verdict for people, and the JSON for programs.
func (s *summary) print() {
	note("%d orders, %d faults of %d kinds: early %d, lost %d, double %d, open %d; lateness: p50 %.0f ms, p99 %.0f ms",
		s.Orders, s.TotalFaults, len(s.Faults), s.Early, s.Lost, s.Double, s.Open, s.Lateness["p50"], s.Lateness["p99"])
	for _, f := range s.FailedFaults {
		note("not played or not undone: %s", f)
	}
	for _, v := range s.Violations {
		note("VIOLATION: %.1000s", v)
	}
	line, _ := json.Marshal(s)
	fmt.Println(string(line))
}
