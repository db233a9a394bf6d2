//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// spread is the median and the largest of some values.
type spread struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

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
	// RecoverySeconds is how long after a fault of a kind lateness was normal again; see checker.Recovery.
	RecoverySeconds map[string]spread `json:"recovery_s"`
	// NormalMillis is the lateness that counted as normal for that; see checker.Normal. Of several rounds it is the largest.
	NormalMillis int64 `json:"normal_ms"`
	// Lateness is that of all closed orders. Undisturbed leaves out the orders that were due during a
	// fault, or before lateness was normal again after it.
	Lateness    map[string]float64 `json:"lateness_ms"`
	Undisturbed map[string]float64 `json:"undisturbed_ms"`
	ByPath      map[string]int     `json:"closed"`
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
		Acts: map[string]int{}, Faults: map[string]int{}, RecoverySeconds: map[string]spread{}, ByPath: map[string]int{},
		NotTried: append([]string{}, missing...), Violations: []string{}, FailedFaults: []string{},
	}
	recovery := map[string][]time.Duration{}
	var late, undisturbed []time.Duration
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
		samples := r.trustworthy()
		normal := checker.Normal(samples, r.began.Add(joinTime), r.began.Add(warmUp))
		sum.NormalMillis = max(sum.NormalMillis, normal.Milliseconds())
		var disturbed []span
		for _, p := range r.played {
			if p.Err != nil {
				sum.FailedFaults = append(sum.FailedFaults, fmt.Sprintf("%s: %.500v", p.Kind, p.Err))
				continue
			}
			sum.Faults[p.Kind]++
			sum.TotalFaults++
			d, _ := checker.Recovery(samples, p.To, normal)
			recovery[p.Kind] = append(recovery[p.Kind], d)
			disturbed = append(disturbed, span{p.From, p.To.Add(d)})
		}
		for _, sample := range samples {
			late = append(late, sample.Late)
			if !slices.ContainsFunc(disturbed, func(s span) bool { return s.has(sample.Due) }) {
				undisturbed = append(undisturbed, sample.Late)
			}
		}
	}
	for kind, all := range recovery {
		sum.RecoverySeconds[kind] = spread{checker.Quantile(all, 0.5).Seconds(), checker.Quantile(all, 1).Seconds()}
	}
	sum.Lateness, sum.Undisturbed = quantiles(late), quantiles(undisturbed)
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

// print prints a table for people, and the JSON for programs.
func (s *summary) print() {
	t := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nfault\tplayed\trecovery p50\tmax\n")
	for _, kind := range slices.Sorted(maps.Keys(s.Faults)) {
		r := s.RecoverySeconds[kind]
		fmt.Fprintf(t, "%s\t%d\t%.0f s\t%.0f s\n", kind, s.Faults[kind], r.P50, r.Max)
	}
	_ = t.Flush()
	note("\n%d orders, %.0f acts a second, %d faults of %d kinds, %d processes ended by themselves", s.Orders, s.PerSecond, s.TotalFaults, len(s.Faults), s.Exits)
	note("acts: %v; closed: %v", s.Acts, s.ByPath)
	note("lateness: p50 %.0f ms, p99 %.0f ms, max %.0f ms; undisturbed: p50 %.0f ms, p99 %.0f ms",
		s.Lateness["p50"], s.Lateness["p99"], s.Lateness["max"], s.Undisturbed["p50"], s.Undisturbed["p99"])
	note("normal lateness: up to %d ms; all done %.0f s after the last fault; %d looks for early closes", s.NormalMillis, s.SettledSeconds, s.Looks)
	note("early %d, lost %d, double %d, open %d", s.Early, s.Lost, s.Double, s.Open)
	for _, f := range s.FailedFaults {
		note("not played or not undone: %s", f)
	}
	for _, v := range s.Violations {
		note("VIOLATION: %.1000s", v)
	}
	line, _ := json.Marshal(s)
	fmt.Println(string(line))
}
