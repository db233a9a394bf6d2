package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// missing marks a round that has no such number.
var missing = math.NaN()

// medians are the columns of medians.
var medians = map[string]func(result) float64{
	"held /s":      func(r result) float64 { return r.HeldPS },
	"accepted /s":  func(r result) float64 { return r.AcceptedPS },
	"drain /s":     func(r result) float64 { return r.DrainPS },
	"p50 ms":       func(r result) float64 { return r.P50 },
	"p99 ms":       func(r result) float64 { return r.P99 },
	"p99.9 ms":     func(r result) float64 { return r.P999 },
	"max ms":       func(r result) float64 { return r.Max },
	"gap s":        func(r result) float64 { return r.GapS },
	"overdue s":    func(r result) float64 { return r.OverdueS },
	"server CPU s": func(r result) float64 { return r.ServerCPU },
	"client CPU s": func(r result) float64 { return r.ClientCPU },
	"other CPU s":  func(r result) float64 { return r.OtherCPU },
	"server MB":    func(r result) float64 { return r.ServerMB },
	"client MB":    func(r result) float64 { return r.ClientMB },
	"CPU s a million": func(r result) float64 { // messages, or orders
		switch {
		case r.Workload != "w5":
			return (r.ServerCPU + r.ClientCPU) / float64(r.Messages) * 1e6
		case r.AllCPU == 0: // older rounds have none
			return missing
		}
		return r.AllCPU / float64(r.Messages) * 1e6
	},
	"back after s": func(r result) float64 {
		if r.Victim == victimLeader || r.Victim == victimController { // it stays down
			return missing
		}
		return r.RestartS
	},
	"half closed s":                 func(r result) float64 { return r.HalfClosedS },
	"last closed s":                 func(r result) float64 { return r.LastClosedS },
	"CPU s of the closing programs": func(r result) float64 { return r.ServerCPU },
	"MB of the largest":             func(r result) float64 { return r.ServerMB },
	"server % of a core":            func(r result) float64 { return r.ServerIdle },
	"worker %":                      func(r result) float64 { return r.ClientIdle },
	"worker MB":                     func(r result) float64 { return r.ClientMB },
	"disk MB":                       func(r result) float64 { return r.DiskMB },
	"queries a minute":              func(r result) float64 { return r.Queries },
	"messages lost":                 func(r result) float64 { return float64(r.Lost) },
	"messages acknowledged":         func(r result) float64 { return float64(r.Acknowledged) },
}

// sums are the columns of sums.
var sums = map[string]func(result) int{
	"early":                       func(r result) int { return r.Early },
	"lost":                        func(r result) int { return r.Lost },
	"duplicates":                  func(r result) int { return r.Duplicates },
	"refused":                     func(r result) int { return r.Refused },
	"accepted":                    func(r result) int { return r.Messages - r.Refused },
	"acknowledged before the cut": func(r result) int { return r.Acknowledged },
}

const (
	lateness = "p50 ms|p99 ms|p99.9 ms|max ms|"
	fates    = "early|lost|duplicates|"
	costs    = "CPU s a million|server CPU s|client CPU s|server MB|client MB|other CPU s|note"
)

// columnsOf are the columns of the data of each workload.
var columnsOf = map[string]string{
	"w1": "way|held /s|" + lateness + fates + costs,
	"w2": "way|drain /s|accepted /s|" + lateness + fates + costs,
	"w3": "way|accepted /s|" + lateness + fates + costs,
	"w4": "way|killed|gap s|back after s|accepted|" + fates + "p99 ms|max ms|other CPU s|note",
	"w5": "way|half closed s|last closed s|last closed s, fastest round|last closed s, slowest round|CPU s a million|" +
		"CPU s of the closing programs|MB of the largest|note",
	"w6": "way|server % of a core|worker %|server MB|worker MB|disk MB|queries a minute|other CPU s|note",
	"w7": "way|acknowledged before the cut|" + fates + "back after s|overdue s|p99 ms|max ms|other CPU s|note",
}

// cell returns the value of a column; "": no round has it.
func (g group) cell(column string) string {
	plain := func(v float64) string { return strings.ReplaceAll(number(v), ",", "") }
	switch column {
	case "way":
		return g[0].System
	case "killed":
		return g[0].Victim
	case "note":
		return g.note()
	case "last closed s, fastest round":
		return plain(slices.Min(g.values("last closed s")))
	case "last closed s, slowest round":
		return plain(slices.Max(g.values("last closed s")))
	}
	if sums[column] != nil {
		return plain(float64(g.sum(column)))
	}
	if len(g.values(column)) == 0 {
		return ""
	}
	return plain(g.median(column))
}

// number prints a value with three digits, and with thousands separated.
func number(v float64) string {
	if math.Abs(v) < 999.5 {
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
