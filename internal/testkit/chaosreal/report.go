//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

//go:embed report.html.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

// reportData is what the template shows.
type reportData struct {
	*summary
	All      map[string]float64 // lateness of all orders
	Clean    bool
	Lateness template.HTML // a plot for each round
	Kinds    []kindRow
}

// kindRow is a row of the table of kinds.
type kindRow struct {
	Name, Does string
	Played     int
	P50, Max   string
}

// writeReport writes the report in HTML. It contains everything: no browser asks another host.
func writeReport(path string, sum *summary, rounds []*round) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer f.Close()
	d := reportData{summary: sum, All: sum.Lateness, Clean: len(sum.Violations) == 0}
	for n, r := range rounds {
		d.Lateness += template.HTML(latenessPlot(n+1, r)) // #nosec: plots escape every text
	}
	all, _ := kinds(variant{}, true, func(string) bool { return true })
	all = append(all, powerKinds(variant{brokers: 3})...)
	does := map[string]string{}
	for _, k := range all {
		does[k.name] = k.does
	}
	for _, name := range slices.Sorted(maps.Keys(sum.Faults)) {
		r := sum.RecoverySeconds[name]
		d.Kinds = append(d.Kinds, kindRow{name, does[name], sum.Faults[name], fmt.Sprintf("%.0f s", r.P50), fmt.Sprintf("%.0f s", r.Max)})
	}
	if err := reportTemplate.Execute(f, d); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return f.Close()
}
