package main

import (
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

// runReport writes docs/comparison.md and what belongs to it.
func runReport(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	results := flags.String("results", "results.jsonl", "files of results, separated by commas")
	root := flags.String("root", "../..", "the folder of the project")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := readResults(strings.Split(*results, ",")...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s: make bench-peers measures", *results)
	}
	p := page{groups: grouped(all), all: all}
	files := p.data()
	for name, svg := range p.plots() {
		files["images/"+name] = svg
	}
	files["comparison.md"] = p.markdown()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(*root, "docs", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return p.writeREADME(filepath.Join(*root, "README.md"))
}

// page is docs/comparison.md.
type page struct {
	groups []group
	all    []result
}

// of returns the groups of a workload that were measured.
func (p page) of(workload string) (groups []group) {
	for _, g := range p.groups {
		if g.first().Workload == workload && g.leftOut() == "" {
			groups = append(groups, g)
		}
	}
	return groups
}

// find returns the group of a way, or nil.
func (p page) find(workload, system, victim string) group {
	for _, g := range p.of(workload) {
		if g.first().System == system && g.first().Victim == victim {
			return g
		}
	}
	return nil
}

// section is a workload on the page.
type section struct {
	workload, title, text string
	plot                  *plotOf
	columns               []column
}

// plotOf is the plot of a workload.
type plotOf struct {
	title, unit string
	value       func(result) float64
}

func (s section) image() string { return "peers-" + s.workload + ".svg" }
func (s section) data() string  { return "data/comparison-" + s.workload + ".csv" }

func (p page) plots() map[string]string {
	files := map[string]string{}
	for _, s := range sections {
		var bars []bar
		for _, g := range p.of(s.workload) {
			label := g.first().System
			if g.first().Victim != "" {
				label += ", " + g.first().Victim
			}
			v := g.median(s.plot.value)
			bars = append(bars, bar{label: label, value: v, text: number(v) + s.plot.unit, own: g.first().own()})
		}
		if len(bars) > 0 {
			files[s.image()] = plot(s.plot.title, bars)
		}
	}
	return files
}

func (p page) markdown() string {
	var b strings.Builder
	b.WriteString(pageHead)
	fmt.Fprintf(&b, "The machine has %s. Client, servers and programs share it, over the loopback. "+
		"Each way has one server, but for those whose names end with -3.\n", p.machines())
	b.WriteString(p.trust() + "\n" + p.aims())
	fmt.Fprintf(&b, "[%s](%s) says what each way is, and has its most important numbers; *early*, *lost* and *duplicates* are\n"+
		"sums of all rounds. [%s](%s) has versions, and what was set. In the data, *CPU s a million* is\n"+
		"of all servers and clients, *other CPU* of other programs.\n\n", resultsData, resultsData, settingsData, settingsData)
	for _, s := range sections {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.title, s.text)
		if len(p.of(s.workload)) == 0 {
			b.WriteString("Nothing was measured yet.\n\n")
			continue
		}
		fmt.Fprintf(&b, "![%s](images/%s)\n\nAll numbers: [%s](%s)\n\n", s.plot.title, s.image(), s.data(), s.data())
	}
	return b.String() + pollerText + p.leftOut()
}

func (p page) machines() string {
	names := map[string]bool{}
	for _, r := range p.all {
		if r.Machine != "" {
			names[r.Machine] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "; or ")
}

// trust says how many rows are not what a full run on a quiet machine would show.
func (p page) trust() string {
	quick, busy, rows := 0, 0, 0
	for _, g := range p.groups {
		if g.leftOut() != "" {
			continue
		}
		rows++
		if g.first().Quick {
			quick++
		}
		if g.first().disturbed() {
			busy++
		}
	}
	if quick+busy == 0 {
		return ""
	}
	return fmt.Sprintf("\n**Of %d rows %d are of a short run (QUICK) and %d of a machine that other programs kept busy.** Their note in "+
		"the data\nsays so. They show that the measurement works. Do not compare them with other rows.\n", rows, quick, busy)
}

// headlines are the columns of the table of results, which has one row for each way.
var headlines = []struct {
	title, workload, victim string
	of                      func(result) float64
}{
	{"W1: p99 ms", "w1", "", p99},
	{"W2: drain /s", "w2", "", drain},
	{"W3: p99 ms", "w3", "", p99},
	{"W4: gap s, server", "w4", victimServer, gap},
	{"worker", "w4", victimWorker, gap},
	{"leader", "w4", victimLeader, gap},
	{"controller", "w4", victimController, gap},
	{"W5: last closed s", "w5", "", lastClosed},
	{"W6: server % of a core", "w6", "", serverIdle},
	{"W6: queries a minute", "w6", "", queries},
	{"W7: acknowledged", "w7", "", func(r result) float64 { return float64(r.Acknowledged) }},
	{"W7: lost", "w7", "", func(r result) float64 { return float64(r.Lost) }},
	{"W7: overdue s", "w7", "", overdue},
	{"W7: p99 ms", "w7", "", p99},
}

// results has the most important number of each way in each workload, and what it lost in all of them.
func (p page) results() [][]string {
	head := []string{"way", "what it is"}
	for _, h := range headlines {
		head = append(head, h.title)
	}
	rows := [][]string{append(head, "early", "lost", "duplicates")}
	for _, s := range specs() {
		cells := []string{s.name, s.title}
		for _, h := range headlines {
			cell := ""
			if g := p.find(h.workload, s.name, h.victim); g != nil {
				cell = number(g.median(h.of))
			}
			cells = append(cells, cell)
		}
		for _, fate := range []func(result) int{early, lost, func(r result) int { return r.Duplicates }} {
			sum := 0
			for _, g := range p.groups {
				if g.first().System == s.name && g.leftOut() == "" {
					sum += g.sum(fate)
				}
			}
			cells = append(cells, number(float64(sum)))
		}
		rows = append(rows, cells)
	}
	return rows
}

// data returns the files of numbers and settings, by their names in docs.
func (p page) data() map[string]string {
	files := map[string]string{settingsData: csvText(p.settings()), resultsData: csvText(p.results())}
	for _, s := range sections {
		var head []string
		for _, c := range s.columns {
			head = append(head, c.title)
		}
		rows := [][]string{head}
		for _, g := range p.of(s.workload) {
			var cells []string
			for _, c := range s.columns {
				cells = append(cells, c.cell(g))
			}
			rows = append(rows, cells)
		}
		files[s.data()] = csvText(rows)
	}
	return files
}

func csvText(rows [][]string) string {
	var b strings.Builder
	_ = csv.NewWriter(&b).WriteAll(rows) // a strings.Builder fails at no write
	return b.String()
}

// leftOut lists what was not measured, and why.
func (p page) leftOut() string {
	b := "## Left out\n\n"
	why := map[string][]string{}
	var order []string
	for _, g := range p.groups {
		if reason := g.leftOut(); reason != "" {
			key := strings.ToUpper(g.first().Workload) + ": " + reason
			if why[key] == nil {
				order = append(order, key)
			}
			why[key] = append(why[key], strings.TrimSpace(g.first().System+" "+g.first().Victim))
		}
	}
	for _, key := range order {
		b += fmt.Sprintf("- %s (%s)\n", key, strings.Join(why[key], ", "))
	}
	var missing []string
	for _, w := range allWorkloads {
		for _, s := range specs() {
			if s.cannot[w] == "" && !slices.ContainsFunc(p.groups, func(g group) bool { return g.first().Workload == w && g.first().System == s.name }) {
				missing = append(missing, strings.ToUpper(w)+" "+s.name)
			}
		}
	}
	if len(missing) > 0 {
		b += "- Not run yet: " + strings.Join(missing, ", ") + "\n"
	} else if len(order) == 0 {
		b += "Nothing.\n"
	}
	return b + "\n"
}

// The names in docs of the files of settings and of the results of all workloads.
const (
	settingsData = "data/comparison-settings.csv"
	resultsData  = "data/comparison-results.csv"
)

// settings returns a row for each value of each setting of each way.
func (p page) settings() [][]string {
	rows := [][]string{{"way", "setting", "value"}}
	for _, s := range specs() {
		values := map[string][]string{} // by name
		for _, g := range p.groups {
			if g.first().System != s.name {
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

const (
	readmeBegin = "<!-- made by make bench-peers -->\n"
	readmeEnd   = "<!-- end -->\n"
)

// writeREADME replaces the lines between the marks.
func (p page) writeREADME(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), readmeBegin)
	_, after, closed := strings.Cut(rest, readmeEnd)
	if !found || !closed {
		return errors.New(file + " has no lines of make bench-peers: add the marks " + strings.TrimSpace(readmeBegin) + " and " + strings.TrimSpace(readmeEnd))
	}
	return os.WriteFile(file, []byte(before+readmeBegin+p.telling()+readmeEnd+after), 0o644)
}

// telling returns the three most telling numbers, beside those of the usual alternatives. Numbers of
// short runs do not count, nor do those of others of a busy machine.
func (p page) telling() string {
	beside := func(workload string, of func(result) float64, unit string, ways ...string) string {
		var parts []string
		for i, way := range ways {
			if g := p.find(workload, way, ""); g != nil && !g.first().Quick && (i == 0 || !g.first().disturbed()) {
				name := way
				if i == 0 {
					name = "**orderclose**"
				}
				parts = append(parts, name+" "+number(g.median(of))+unit)
			}
		}
		if len(parts) == 0 {
			return "not measured yet on a quiet machine"
		}
		return strings.Join(parts, ", ")
	}
	return "- p99 of the lateness at 1,000 orders a second with delays of 1 to 10 s: " + beside("w3", p99, " ms",
		"orderclose", "redis", "rabbitmq", "poll-1s") + "\n" +
		"- 100,000 due at one instant, received per second: " + beside("w2", drain, "", "orderclose", "redis", "rabbitmq", "poll-1s") + "\n" +
		"- statements a minute on the main database while a million orders wait: " + beside("w6", queries, "", "orderclose-all", "poll-1s", "poll-30s") + "\n"
}
