package main

import (
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// roomPanels is the file panels.yaml of a room.
type roomPanels struct {
	Series string // a metric that each of its processes has
	Panels []struct {
		Title, Unit, Runbook, Shows, Good string
		Queries                           []struct{ Name, Expr string } // in Expr {here} and {here,…} are the chosen processes
	}
}

// roomStages returns the stages of the rooms that have the file panels.yaml.
func roomStages() (all []stage) {
	names, err := filepath.Glob("../../rooms/*/panels.yaml")
	for _, name := range names {
		var of roomPanels
		text, failed := os.ReadFile(name)
		if failed == nil {
			failed = yaml.Unmarshal(text, &of)
		}
		if err = failed; err != nil {
			break
		}
		s := stage{name: filepath.Base(filepath.Dir(name)), series: of.Series}
		for _, p := range of.Panels {
			var queries []query
			for _, q := range p.Queries {
				queries = append(queries, query{q.Name, strings.NewReplacer("{here}", "{"+here+"}", "{here,", "{"+here+",").Replace(q.Expr)})
			}
			s.panels = append(s.panels, graph(p.Title, p.Unit, p.Runbook, p.Shows, p.Good, queries...))
		}
		all = append(all, s)
	}
	if err != nil {
		panic(err) // a file of this repository is wrong
	}
	return all
}
