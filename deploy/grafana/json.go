package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/orderclose/orderclose/internal/runbook"
)

// runbookURL is where the links of all panels lead. The section follows after a #.
const runbookURL = "https://github.com/orderclose/orderclose/blob/main/docs/runbook.md"

// schemaVersion is the version of Grafana's dashboard JSON that the files have: the last one of
// the classic model.
const schemaVersion = 42

// dashboard is a dashboard of Grafana.
type dashboard struct {
	file, uid, title string
	shows            string // its description
	variables        []variable
	rows             []row
}

// variable is a choice at the top of a dashboard: the values of a label of a metric. All of them
// are chosen at first.
type variable struct {
	name, label string
	of          string // the selector of the series with the label
	all         string // what All stands for in a query; "": each value
}

// row is a row of panels, side by side and of the same width; the last one takes what is left.
type row struct {
	title  string // of a heading above the row; "": none
	height int    // in Grafana's units, about 38 pixels
	panels []panel
}

// panel is a panel of a dashboard. All fields but also, red and green are required.
type panel struct {
	title   string
	kind    string // "stat" is the value of now, "timeseries" is a graph
	unit    string // an id of Grafana's units
	shows   string
	good    string // the good values, in words
	runbook string // the section of docs/runbook.md that says what to do otherwise
	also    string // another section, for one of several queries
	queries []query
	red     float64 // of a stat: values from here on are red
	green   float64 // of a stat: values from here on are green, and red below
}

// query is a query of a panel in PromQL, and the name of its series.
type query struct{ name, expr string }

// object is a JSON object. Its keys are written in alphabetical order.
type object map[string]any

// json returns the file of a dashboard.
func (d dashboard) json() []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(object{
		"uid": d.uid, "title": d.title, "description": d.shows, "tags": []string{"orderclose"}, "schemaVersion": schemaVersion,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"templating": object{"list": d.variablesJSON()},
		"panels":     d.panelsJSON(),
		"links":      linksJSON(),
	})
	if err != nil {
		panic(err) // the types above can be encoded
	}
	return out.Bytes()
}

// linksJSON returns the links between the dashboards. They keep the Prometheus and the job that
// are chosen, but not the processes and topics, which other dashboards do not have.
func linksJSON() (links []object) {
	for _, d := range dashboards() {
		links = append(links, object{
			"title": strings.TrimPrefix(d.title, "orderclose: "), "type": "link", "url": "/d/" + d.uid + "?${datasource:queryparam}&${job:queryparam}",
			"icon": "dashboard", "tooltip": d.shows, "keepTime": true, "includeVars": false, "targetBlank": false, "asDropdown": false, "tags": []string{},
		})
	}
	return links
}

func (d dashboard) variablesJSON() []object {
	list := []object{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1},
		{"name": "runbook", "type": "constant", "query": runbookURL, "hide": 2, "skipUrlSync": true},
	}
	for _, v := range d.variables {
		o := object{
			"name": v.name, "label": v.label, "type": "query", "datasource": datasource(),
			"definition": v.query(), "query": object{"query": v.query(), "refId": "StandardVariableQuery"},
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true,
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		}
		if v.all != "" {
			o["allValue"] = v.all
		}
		list = append(list, o)
	}
	return list
}

// query returns the query of a variable, in the language of Grafana's data source.
func (v variable) query() string { return fmt.Sprintf("label_values(%s, %s)", v.of, v.name) }

func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// panelsJSON places the rows below one another.
func (d dashboard) panelsJSON() []object {
	var all []object
	y := 0
	add := func(o object, height, width, x int) {
		o["id"], o["gridPos"] = len(all)+1, object{"h": height, "w": width, "x": x, "y": y}
		all = append(all, o)
	}
	for _, r := range d.rows {
		if r.title != "" {
			add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 1, 24, 0)
			y++
		}
		width := 24 / len(r.panels)
		for i, p := range r.panels {
			x := i * width
			if i == len(r.panels)-1 {
				width = 24 - x
			}
			add(p.json(), r.height, width, x)
		}
		y += r.height
	}
	return all
}

func (p panel) json() object {
	defaults := object{"unit": p.unit, "min": 0}
	options := object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	if p.kind == "stat" {
		if p.unit == "short" {
			defaults["decimals"] = 0
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": p.steps()}
		options = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
		}
	}
	var links []object
	for _, section := range []string{p.runbook, p.also} {
		if section != "" { // without :raw, Grafana would encode the slashes of the address
			links = append(links, object{"title": "Runbook: " + section, "url": "${runbook:raw}#" + runbook.Anchor(section), "targetBlank": true})
		}
	}
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": datasource(), "editorMode": "code", "expr": q.expr, "legendFormat": q.name,
			"instant": p.kind == "stat", "range": p.kind != "stat",
		})
	}
	return object{
		"type": p.kind, "title": p.title, "description": p.shows + "\n\nGood: " + p.good, "datasource": datasource(),
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": options, "targets": targets, "links": links,
	}
}

// steps returns the colors of a stat by value.
func (p panel) steps() []object {
	step := func(value any, color string) object { return object{"value": value, "color": color} }
	switch {
	case p.red > 0:
		return []object{step(nil, "green"), step(p.red, "red")}
	case p.green > 0:
		return []object{step(nil, "red"), step(p.green, "green")}
	}
	return []object{step(nil, "blue")}
}
