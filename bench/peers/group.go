package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// group is the results of one way, workload and victim: several rounds.
type group []result

// grouped returns the groups in the order of workloads, ways and victims.
func grouped(all []result) (groups []group) {
	ways := namesOf(specs())
	for _, workload := range allWorkloads {
		for _, way := range ways {
			for _, victim := range []string{"", victimServer, victimWorker, victimLeader, victimController} {
				var g group
				for _, r := range all {
					if r.Workload == workload && r.System == way && r.Victim == victim {
						g = append(g, r)
					}
				}
				if len(g) > 0 {
					groups = append(groups, g.best())
				}
			}
		}
	}
	return groups
}

// best returns the results that say the most: of those that were measured the full ones, if there
// are any, and of these the undisturbed ones, if there are any. If nothing was measured it returns
// the last reason.
func (g group) best() group {
	keep := func(wanted func(result) bool) {
		some := slices.DeleteFunc(slices.Clone(g), func(r result) bool { return !wanted(r) })
		if len(some) > 0 {
			g = some
		}
	}
	keep(func(r result) bool { return r.LeftOut == "" })
	if g[0].LeftOut != "" {
		return g[len(g)-1:]
	}
	keep(func(r result) bool { return !r.Quick })
	keep(func(r result) bool { return !r.disturbed() })
	return g
}

// note says how far the numbers of a group can be trusted.
func (g group) note() string {
	var notes []string
	if n := g.sum(func(r result) int { return r.Refused }); n > 0 {
		notes = append(notes, number(float64(n))+" not accepted")
	}
	if g.first().Quick {
		notes = append(notes, "QUICK")
	}
	if g.first().disturbed() {
		notes = append(notes, "busy machine")
	}
	if len(g) > 1 {
		notes = append(notes, fmt.Sprintf("%d rounds", len(g)))
	}
	return strings.Join(notes, ", ")
}

func (g group) first() result   { return g[0] }
func (g group) leftOut() string { return g[0].LeftOut }

func (g group) median(of func(result) float64) float64 { return measure.Median(g.values(of)) }

// values returns one number for each round.
func (g group) values(of func(result) float64) []float64 {
	values := make([]float64, len(g))
	for i, r := range g {
		values[i] = of(r)
	}
	return values
}

func (g group) sum(of func(result) int) (n int) {
	for _, r := range g {
		n += of(r)
	}
	return n
}

func p50(r result) float64        { return r.P50 }
func p99(r result) float64        { return r.P99 }
func drain(r result) float64      { return r.DrainPS }
func gap(r result) float64        { return r.GapS }
func lastClosed(r result) float64 { return r.LastClosedS }
func serverIdle(r result) float64 { return r.ServerIdle }
func clientIdle(r result) float64 { return r.ClientIdle }
func disk(r result) float64       { return r.DiskMB }
func queries(r result) float64    { return r.Queries }
func acknowledged(r result) int   { return r.Acknowledged }
func overdue(r result) float64    { return r.OverdueS }
func early(r result) int          { return r.Early }
func lost(r result) int           { return r.Lost }

// million returns the CPU seconds of all servers and programs for a million messages or orders.
func million(r result) float64 {
	used := r.ServerCPU + r.ClientCPU
	if r.Workload == "w5" {
		used = r.AllCPU
	}
	return used / float64(r.Messages) * 1e6
}
