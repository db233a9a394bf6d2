package main

import (
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
	for name, svg := range p.plots() {
		if err := os.WriteFile(filepath.Join(*root, "docs", "images", name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(*root, "docs", "comparison.md"), []byte(p.markdown()), 0o644); err != nil {
		return err
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
		"Each way has one server, but for those in W4 whose names end with -3.\n", p.machines())
	b.WriteString(p.trust() + "\n" + p.aims())
	b.WriteString("## The ways\n\n| name | what it is |\n| --- | --- |\n")
	for _, s := range specs() {
		fmt.Fprintf(&b, "| %s | %s |\n", s.name, s.title)
	}
	b.WriteString("\n[Settings](#settings) has versions, and what was set.\n\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n%s", s.title, s.text, p.table(s))
	}
	return b.String() + pollerText + p.leftOut() + p.settings()
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
	return fmt.Sprintf("\n**Of %d rows %d are of a short run (QUICK) and %d of a machine that other programs kept busy.** Their last "+
		"column says\nso. They show that the measurement works. Do not compare them with other rows.\n", rows, quick, busy)
}

// table prints the rows of a workload, and its plot.
func (p page) table(s section) string {
	groups := p.of(s.workload)
	if len(groups) == 0 {
		return "Nothing was measured yet.\n\n"
	}
	var head, line []string
	for _, c := range s.columns {
		head = append(head, c.title)
		line = append(line, c.align)
	}
	b := fmt.Sprintf("![%s](images/%s)\n\n| %s |\n| %s |\n", s.plot.title, s.image(), strings.Join(head, " | "), strings.Join(line, " | "))
	for _, g := range groups {
		var cells []string
		for _, c := range s.columns {
			cells = append(cells, c.cell(g))
		}
		b += "| " + strings.Join(cells, " | ") + " |\n"
	}
	return b + "\n"
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

// settings prints each setting of each way once, with the workloads that had it if they differ.
func (p page) settings() string {
	b := "## Settings\n\n"
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
		if len(values) == 0 {
			continue
		}
		b += fmt.Sprintf("**%s** (%s)\n\n", s.name, s.title)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			b += fmt.Sprintf("- %s: %s\n", name, strings.Join(values[name], "; or "))
		}
		b += "\n"
	}
	return strings.TrimRight(b, "\n") + "\n"
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
// short runs and of a busy machine do not count.
func (p page) telling() string {
	beside := func(workload string, of func(result) float64, unit string, ways ...string) string {
		var parts []string
		for i, way := range ways {
			if g := p.find(workload, way, ""); g != nil && !g.first().Quick && !g.first().disturbed() {
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
