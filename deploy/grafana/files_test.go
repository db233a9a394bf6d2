package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestFiles_AreWhatTheProgramWrites(t *testing.T) {
	names := must.Get(filepath.Glob(filepath.Join(folder, "*.json")))(t)
	expect.Equal(t, len(names), len(dashboards()), "dashboards in the folder")
	for _, d := range dashboards() {
		data := must.Get(os.ReadFile(filepath.Join(folder, d.file)))(t)
		expect.That(t, bytes.Equal(data, d.json()), "%s differs from dashboards.go and stages.go: run go run . in this folder", d.file)
	}
}

// panels returns the panels of all rows.
func (d dashboard) panels() (all []panel) {
	for _, r := range d.rows {
		all = append(all, r.panels...)
	}
	return all
}

func TestPanels_ExplainThemselvesAndLinkToTheRunbook(t *testing.T) {
	for _, d := range dashboards() {
		for _, p := range d.panels() {
			expect.That(t, p.shows != "" && p.good != "" && strings.HasSuffix(p.good, "."), "%s: %s does not say what it shows and what is good", d.file, p.title)
			expect.That(t, p.unit != "" && len(p.queries) != 0, "%s: %s has no unit or no query", d.file, p.title)
			for _, section := range []string{p.runbook, p.also} {
				_, there := runbook.At(runbook.Anchor(section))
				expect.That(t, there || section == "" && p.runbook != "", "%s: %s links to %q, which does not exist", d.file, p.title, section)
			}
			for _, q := range p.queries {
				expect.That(t, q.name != "", "%s: %s: %s has no name", d.file, p.title, q.expr)
			}
		}
	}
}

// A screen of 1080 pixels shows 23 units of height.
func TestOverview_ThePromisesFitOnOneScreen(t *testing.T) {
	var f struct {
		Panels []struct {
			Title   string
			GridPos struct{ H, Y int }
		}
	}
	must.Do(t, json.Unmarshal(overview().json(), &f))
	for _, p := range f.Panels {
		below := p.GridPos.Y + p.GridPos.H
		expect.That(t, !strings.ContainsAny(p.Title[:1], "12345") || below <= 23, "%s ends at %d", p.Title, below)
	}
}
