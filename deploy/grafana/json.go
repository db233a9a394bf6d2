package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
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

// variable is a choice at the top of a dashboard: the values of a label of a metric, or choices. All of them
// are chosen at first.
type variable struct {
	name, label string
	of          string // the selector of the series with the label
	all         string // what All stands for in a query; "": each value
	choices     string // in place of of: "text : value, …"
}

// row is a heading with panels below it, at most perLine side by side.
type row struct {
	title     string // "": no heading
	collapsed bool   // Grafana shows the panels, and sends their queries, when somebody opens the row
	panels    []panel
}

// panel is a panel of a dashboard. All fields but also, red and green are required.
type panel struct {
	kind    string // "stat" is the value of now, "timeseries" is a graph
	title   string
	unit    string // an id of Grafana's units
	runbook string // the section of docs/runbook.md that says what to do if the values are not good
	shows   string
	good    string // the good values, in words
	queries []query
	also    string  // another section, for one of several queries
	red     float64 // of a stat: values from here on are red
	green   float64 // of a stat: values from here on are green, and red below
}

// query is a query of a panel in PromQL, and the name of its series.
type query struct{ name, expr string }

func graph(title, unit, runbook, shows, good string, queries ...query) panel {
	return panel{kind: "timeseries", title: title, unit: unit, runbook: runbook, shows: shows, good: good, queries: queries}
}

func stat(title, unit, runbook, shows, good string, queries ...query) panel {
	return panel{kind: "stat", title: title, unit: unit, runbook: runbook, shows: shows, good: good, queries: queries}
}

func (p panel) or(section string) panel       { p.also = section; return p }
func (p panel) redFrom(value float64) panel   { p.red = value; return p }
func (p panel) greenFrom(value float64) panel { p.green = value; return p }

// object is a JSON object. Its keys are written in alphabetical order.
type object map[string]any

// json returns the file of a dashboard: each panel is a line.
func (d dashboard) json() []byte {
	return []byte(withPanels(object{
		"uid": d.uid, "title": d.title, "description": d.shows, "tags": []string{"orderclose"}, "schemaVersion": schemaVersion,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"templating": object{"list": d.variablesJSON()},
		"links":      linksJSON(),
	}, d.panelsJSON()) + "\n")
}

// line returns an object on one line.
func line(o object) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		panic(err) // the types here can be encoded
	}
	return strings.TrimSpace(out.String())
}

// withPanels returns an object with panels.
func withPanels(o object, panels []string) string {
	return strings.TrimSuffix(line(o), "}") + ",\"panels\":[\n" + strings.Join(panels, ",\n") + "\n]}"
}

// linksJSON returns the links between the dashboards. They keep the Prometheus and the job that are chosen.
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
			"definition": v.query(), "query": object{"query": v.query(), "refId": "StandardVariableQuery"}, "refresh": 2, "sort": 1,
		}
		if v.choices != "" {
			o = object{"name": v.name, "label": v.label, "type": "custom", "query": v.choices}
		}
		if v.all != "" {
			o["allValue"] = v.all
		}
		o["multi"], o["includeAll"], o["current"] = true, true, object{"text": []string{"All"}, "value": []string{"$__all"}}
		list = append(list, o)
	}
	return list
}

// query returns the query of a variable, in the language of Grafana's data source.
func (v variable) query() string { return fmt.Sprintf("label_values(%s, %s)", v.of, v.name) }

func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// perLine and height are the most panels side by side, and their height in Grafana's units, about 38 pixels.
var perLine, height = map[string]int{"stat": 6, "timeseries": 4}, map[string]int{"stat": 4, "timeseries": 7}

// panelsJSON places the rows below one another. The panels of a collapsed row are in the object of its heading.
func (d dashboard) panelsJSON() (all []string) {
	y, id := 0, 0
	place := func(o object, height, width, x int) object {
		id++
		o["id"], o["gridPos"] = id, object{"h": height, "w": width, "x": x, "y": y}
		return o
	}
	for _, r := range d.rows {
		heading := place(object{"type": "row", "title": r.title, "collapsed": r.collapsed}, 1, 24, 0)
		after := y + 1
		if r.title != "" {
			y++
		}
		var panels []string
		kind := r.panels[0].kind
		lines := (len(r.panels) + perLine[kind] - 1) / perLine[kind]
		for side := range slices.Chunk(r.panels, (len(r.panels)+lines-1)/lines) {
			for i, p := range side {
				x := 24 * i / len(side)
				panels = append(panels, line(place(p.json(), height[kind], 24*(i+1)/len(side)-x, x)))
			}
			y += height[kind]
		}
		switch {
		case r.collapsed:
			all, y = append(all, withPanels(heading, panels)), after
		case r.title != "":
			all = append(append(all, withPanels(heading, nil)), panels...)
		default:
			all = append(all, panels...)
		}
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
