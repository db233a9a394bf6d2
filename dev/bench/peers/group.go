package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// group is the results of one way, workload and victim: several rounds.
type group []result

// grouped returns the groups in the order of workloads, ways and victims.
func grouped(all []result) (groups []group) {
	for _, workload := range allWorkloads {
		for _, way := range specs() {
			for _, victim := range []string{"", victimServer, victimWorker, victimLeader, victimController} {
				g := slices.DeleteFunc(slices.Clone(all), func(r result) bool {
					return r.Workload != workload || r.System != way.name || r.Victim != victim
				})
				if len(g) > 0 {
					groups = append(groups, group(g).best())
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
		if some := slices.DeleteFunc(slices.Clone(g), func(r result) bool { return !wanted(r) }); len(some) > 0 {
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

// trusted says whether the rounds are full and undisturbed.
func (g group) trusted() bool { return !g[0].Quick && !g[0].disturbed() }

// note says how far the numbers of a group can be trusted.
func (g group) note() string {
	var notes []string
	if n := g.sum("refused"); n > 0 {
		notes = append(notes, number(float64(n))+" not accepted")
	}
	if g[0].Quick {
		notes = append(notes, "QUICK")
	}
	if g[0].disturbed() {
		notes = append(notes, "busy machine")
	}
	if len(g) > 1 {
		notes = append(notes, fmt.Sprintf("%d rounds", len(g)))
	}
	return strings.Join(notes, ", ")
}

// median returns the median of a column.
func (g group) median(column string) float64 { return measure.Median(g.values(column)) }

// values returns one number for each round that has the column.
func (g group) values(column string) (values []float64) {
	for _, r := range g {
		if v := medians[column](r); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

func (g group) sum(column string) (n int) {
	for _, r := range g {
		n += sums[column](r)
	}
	return n
}
