package main

import (
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// roomDashboard is the file panels.yaml of a room.
type roomDashboard struct {
	Shows  string
	Stage  string // of a role that reads partitions
	Series string // of a role that reads none: a metric that each of its processes has
	Panels []struct {
		Title, Unit, Runbook, Shows, Good string
		Queries                           []struct{ Name, Expr string } // in Expr {here} and {here,…} are the chosen processes
	}
}

// roomDashboards returns the dashboards of the rooms that have the file panels.yaml.
func roomDashboards() (all []dashboard) {
	names, err := filepath.Glob("../../rooms/*/panels.yaml")
	for _, name := range names {
		var of roomDashboard
		text, failed := os.ReadFile(name)
		if failed == nil {
			failed = yaml.Unmarshal(text, &of)
		}
		if err = failed; err != nil {
			break
		}
		all = append(all, of.dashboard(filepath.Base(filepath.Dir(name))))
	}
	if err != nil {
		panic(err) // a file of this repository is wrong
	}
	return all
}

func (of roomDashboard) dashboard(room string) dashboard {
	d := dashboard{file: room + ".json", uid: "orderclose-" + room, title: "orderclose: " + room, shows: of.Shows}
	first := row{height: graphHeight}
	for _, p := range of.Panels {
		graph := panel{title: p.Title, kind: "timeseries", unit: p.Unit, runbook: p.Runbook, shows: p.Shows, good: p.Good}
		for _, q := range p.Queries {
			graph.queries = append(graph.queries, query{q.Name, strings.NewReplacer("{here}", "{"+here+"}", "{here,", "{"+here+",").Replace(q.Expr)})
		}
		first.panels = append(first.panels, graph)
	}
	d.rows = []row{first}
	if of.Stage != "" {
		d.variables, d.rows = partitions(of.Stage, "Topic"), append(d.rows, stageFailures(of.Stage)...)
	} else {
		d.variables = []variable{jobs, {"instance", "Process", of.Series + "{" + everywhere + "}", ""}}
	}
	d.rows = append(d.rows, process())
	return d
}
