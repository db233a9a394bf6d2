package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runReport writes the numbers of docs/comparison.md and README.md, and docs/data/comparison-*.csv.
func runReport(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	results := flags.String("results", "results.jsonl", "the file of results")
	root := flags.String("root", "../../..", "the folder of the project")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := readResults(*results)
	if err != nil {
		return fmt.Errorf("%w: make bench-peers measures", err)
	}
	p := page(grouped(all))
	for name, rows := range p.data() {
		var text strings.Builder
		_ = csv.NewWriter(&text).WriteAll(rows) // a strings.Builder fails at no write
		if err := os.WriteFile(filepath.Join(*root, "docs/data/comparison-"+name+".csv"), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(fillIn(filepath.Join(*root, "docs/comparison.md"), p.parts()),
		fillIn(filepath.Join(*root, "README.md"), map[string]string{"": p.telling()}))
}

// fillIn replaces the lines of a file between the marks of each part.
func fillIn(file string, parts map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for name, lines := range parts {
		begin, end := "<!-- "+strings.TrimSpace("made by make bench-peers "+name)+" -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(string(text), begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return fmt.Errorf("%s has no lines %q and %q", file, begin, end)
		}
		text = []byte(before + begin + lines + end + after)
	}
	return os.WriteFile(file, text, 0o644)
}

// page is what docs/comparison.md shows.
type page []group

// of returns the groups of a workload that were measured.
func (p page) of(workload string) page {
	return slices.DeleteFunc(slices.Clone(p), func(g group) bool { return g[0].Workload != workload || g[0].LeftOut != "" })
}

// find returns the group of a way, or nil.
func (p page) find(workload, system, victim string) group {
	for _, g := range p.of(workload) {
		if g[0].System == system && g[0].Victim == victim {
			return g
		}
	}
	return nil
}

// headline is a column of the table of results, which has one row for each way.
type headline struct {
	title, workload, victim, column string
	order                           int // on the page; 1: the smallest is the best, -1: the largest is; 0: it is not there
}

var headlines = []headline{
	{"W1: p99 ms", "w1", "", "p99 ms", 1},
	{"W2: drain /s", "w2", "", "drain /s", -1},
	{"W3: p99 ms", "w3", "", "p99 ms", 1},
	{"W4: gap s, server", "w4", victimServer, "gap s", 1},
	{"worker", "w4", victimWorker, "gap s", 1},
	{"leader", "w4", victimLeader, "gap s", 1},
	{"controller", "w4", victimController, "gap s", 1},
	{"W5: last closed s", "w5", "", "last closed s", 1},
	{"W6: server % of a core", "w6", "", "server % of a core", 1},
	{"W6: queries a minute", "w6", "", "queries a minute", 0},
	{"W7: acknowledged", "w7", "", "messages acknowledged", 0},
	{"W7: lost", "w7", "", "messages lost", 1},
	{"W7: overdue s", "w7", "", "overdue s", 0},
	{"W7: p99 ms", "w7", "", "p99 ms", 1},
}

// data returns the rows of the CSV files, by the part of the name that differs.
func (p page) data() map[string][][]string {
	files := map[string][][]string{"results": p.results(), "settings": p.settings()}
	for workload, columns := range columnsOf {
		rows := [][]string{strings.Split(columns, "|")}
		for _, g := range p.of(workload) {
			var cells []string
			for _, c := range rows[0] {
				cells = append(cells, g.cell(c))
			}
			rows = append(rows, cells)
		}
		files[workload] = rows
	}
	return files
}

// results has the most important number of each way in each workload, and what it lost in all of them.
func (p page) results() [][]string {
	head := []string{"way", "what it is"}
	for _, h := range headlines {
		head = append(head, h.title)
	}
	fates := []string{"early", "lost", "duplicates"}
	rows := [][]string{append(head, fates...)}
	for _, s := range specs() {
		cells := []string{s.name, s.title}
		for _, h := range headlines {
			cell := ""
			if g := p.find(h.workload, s.name, h.victim); g != nil {
				cell = number(g.median(h.column))
			}
			cells = append(cells, cell)
		}
		for _, fate := range fates {
			sum := 0
			for _, g := range p {
				if g[0].System == s.name {
					sum += g.sum(fate)
				}
			}
			cells = append(cells, number(float64(sum)))
		}
		rows = append(rows, cells)
	}
	return rows
}

// settings returns a row for each value of each setting of each way.
func (p page) settings() [][]string {
	rows := [][]string{{"way", "setting", "value"}}
	for _, s := range specs() {
		values := map[string][]string{} // by name
		for _, g := range p {
			if g[0].System != s.name {
				continue
			}
			for name, value := range g[len(g)-1].Settings {
				if !slices.Contains(values[name], value) {
					values[name] = append(values[name], value)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			for _, value := range values[name] {
				rows = append(rows, []string{s.name, name, value})
			}
		}
	}
	return rows
}

// parts returns the lines of docs/comparison.md that have numbers, by the name of their mark.
func (p page) parts() map[string]string {
	parts := map[string]string{"rows": p.trust(), "aims": p.aims()}
	for _, h := range headlines {
		if h.order == 0 {
			continue
		}
		groups := slices.DeleteFunc(p.of(h.workload), func(g group) bool { return g[0].Victim != h.victim })
		slices.SortStableFunc(groups, func(a, b group) int { return h.order * cmp.Compare(a.median(h.column), b.median(h.column)) })
		var ways []string
		for _, g := range groups {
			name := g[0].System
			if g[0].own() {
				name = "**" + name + "**"
			}
			ways = append(ways, name+" "+number(g.median(h.column)))
		}
		what := h.column
		if h.victim != "" {
			what += ", " + h.victim
		}
		parts[h.workload] += "- " + what + ": " + cmp.Or(strings.Join(ways, ", "), "nothing was measured") + "\n"
	}
	return parts
}

// trust says how many rows are not what a full run on a quiet machine would show, and what could not be measured.
func (p page) trust() string {
	quick, busy, rows, machines, leftOut := 0, 0, 0, []string{}, ""
	for _, g := range p {
		if g[0].LeftOut != "" {
			leftOut += fmt.Sprintf("\n- %s, %s: %s\n", g[0].System, g[0].Workload, g[0].LeftOut)
			continue
		}
		rows++
		if g[0].Quick {
			quick++
		}
		if g[0].disturbed() {
			busy++
		}
		for _, r := range g {
			if !slices.Contains(machines, r.Machine) {
				machines = append(machines, r.Machine)
			}
		}
	}
	return fmt.Sprintf("The machine has %s. Of %d rows %d are of a short run (QUICK) and %d of a machine that other programs kept busy.\n%s",
		strings.Join(machines, ", or "), rows, quick, busy, leftOut)
}

// telling returns the three most telling numbers, beside those of the usual alternatives. Those of short runs and of a busy machine are not there.
func (p page) telling() (text string) {
	for _, line := range []struct{ what, workload, column, unit, ways string }{
		{"p99 of the lateness at 1,000 orders a second with delays of 1 to 10 s", "w3", "p99 ms", " ms", "orderclose redis rabbitmq poll-1s"},
		{"100,000 due at one instant, received per second", "w2", "drain /s", "", "orderclose redis rabbitmq poll-1s"},
		{"statements a minute on the main database while a million orders wait", "w6", "queries a minute", "", "orderclose-all poll-1s poll-30s"},
	} {
		var parts []string
		for _, way := range strings.Fields(line.ways) {
			if g := p.find(line.workload, way, ""); g != nil && g.trusted() {
				name := way
				if g[0].own() {
					name = "**orderclose**"
				}
				parts = append(parts, name+" "+number(g.median(line.column))+line.unit)
			}
		}
		text += "- " + line.what + ": " + cmp.Or(strings.Join(parts, ", "), "not measured yet on a quiet machine") + "\n"
	}
	return text
}
