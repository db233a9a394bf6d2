package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// file is a dashboard as it is in a file, with the keys that the tests read.
type file struct {
	UID           string
	SchemaVersion int
	Tags          []string
	Templating    struct{ List []fileVariable }
	Panels        []filePanel
}

type fileVariable struct {
	Name, Type, Definition, AllValue string
	Query                            any
}

type filePanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Links                    []struct{ Title, URL string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []target
	Collapsed                bool
	Panels                   []filePanel
}

type target struct {
	Expr, LegendFormat string
	Instant            bool
}

// panels returns the panels without headings, also those of collapsed rows.
func (f file) panels() (all []filePanel) {
	for _, p := range f.Panels {
		if p.Type == "row" {
			all = append(all, p.Panels...)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// files returns all dashboards, by the names of their files.
func files(t *testing.T) map[string]file {
	t.Helper()
	names := must.Get(filepath.Glob(filepath.Join(folder, "*.json")))(t)
	all := map[string]file{}
	for _, name := range names {
		data := must.Get(os.ReadFile(name))(t)
		var f file
		err := json.Unmarshal(data, &f)
		must.That(t, err == nil, "%s: %v", name, err)
		all[filepath.Base(name)] = f
	}
	return all
}

func TestFiles_AreWhatTheProgramWrites(t *testing.T) {
	var names []string
	for _, d := range dashboards() {
		names = append(names, d.file)
		data := must.Get(os.ReadFile(filepath.Join(folder, d.file)))(t)
		expect.That(t, bytes.Equal(data, d.json()), "%s differs from dashboards.go and stages.go: run go run . in this folder", d.file)
	}
	slices.Sort(names)
	got := slices.Sorted(maps.Keys(files(t)))
	expect.That(t, slices.Equal(got, names), "the folder has the dashboards %v, want %v", got, names)
}

func TestFiles_EachPanelExplainsItselfAndLinksToTheRunbook(t *testing.T) {
	for name, f := range files(t) {
		for _, p := range f.panels() {
			shows, good, ok := strings.Cut(p.Description, "\n\nGood: ")
			expect.That(t, ok && shows != "" && good != "" && strings.HasSuffix(p.Description, "."),
				"%s: %s: the description %q does not say what the panel shows and what is good", name, p.Title, p.Description)
			expect.That(t, p.FieldConfig.Defaults.Unit != "" && len(p.Targets) != 0, "%s: %s has no unit or no query", name, p.Title)
			for _, link := range p.Links {
				anchor, ok := strings.CutPrefix(link.URL, "${runbook:raw}#")
				_, there := runbook.At(anchor)
				expect.That(t, ok && there, "%s: %s links to %s, which does not exist", name, p.Title, link.URL)
			}
			expect.That(t, len(p.Links) != 0, "%s: %s has no link to the runbook", name, p.Title)
			for _, target := range p.Targets {
				expect.That(t, target.LegendFormat != "", "%s: %s: %s has no name", name, p.Title, target.Expr)
			}
		}
	}
}

// screen is how many units of height a screen of 1080 pixels shows of a dashboard.
const screen = 23

func TestFiles_ThePromisesFitOnOneScreen(t *testing.T) {
	for _, p := range files(t)["overview.json"].panels() {
		below := p.GridPos.Y + p.GridPos.H
		expect.That(t, !strings.ContainsAny(p.Title[:1], "12345") || below <= screen, "%s ends at %d, want at most %d", p.Title, below, screen)
	}
}

func TestFiles_PanelsHaveAPlaceAndAnIDOfTheirOwn(t *testing.T) {
	uids := map[string]string{}
	for name, f := range files(t) {
		if other := uids[f.UID]; other != "" || f.UID == "" || len(f.UID) > 40 {
			t.Errorf("%s has the uid %q; of %q, too", name, f.UID, other)
		}
		uids[f.UID] = name
		ids := map[int]bool{}
		placed(t, name, f.Panels, ids)
		for _, p := range f.Panels {
			placed(t, name, p.Panels, ids)
			expect.That(t, (len(p.Panels) > 0) == p.Collapsed, "%s: %s is collapsed: %v, with %d panels", name, p.Title, p.Collapsed, len(p.Panels))
		}
	}
}

// placed checks the places of panels that Grafana shows together.
func placed(t *testing.T, name string, panels []filePanel, ids map[int]bool) {
	t.Helper()
	taken := map[[2]int]string{}
	for _, p := range panels {
		expect.That(t, !ids[p.ID], "%s: %s has the id %d of another panel", name, p.Title, p.ID)
		ids[p.ID] = true
		expect.That(t, p.GridPos.W >= 4 && p.GridPos.H >= 1 && p.GridPos.X+p.GridPos.W <= 24, "%s: %s is at %+v", name, p.Title, p.GridPos)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				other := taken[[2]int{x, y}]
				must.That(t, other == "", "%s: %s covers %s", name, p.Title, other)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// The examples have only keys that Grafana knows.
func TestProvisioning_IsReadStrictly(t *testing.T) {
	decode := func(name string, into any) {
		t.Helper()
		f := must.Get(os.Open(name))(t)
		defer f.Close()
		d := yaml.NewDecoder(f)
		d.KnownFields(true)
		err := d.Decode(into)
		must.That(t, err == nil, "%s: %v", name, err)
	}
	var providers struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type string
			AllowUIUpdates     bool `yaml:"allowUiUpdates"`
			Options            struct{ Path string }
		}
	}
	decode("provisioning/dashboards/orderclose.yaml", &providers)
	expect.That(t, len(providers.Providers) == 1 && providers.Providers[0].Type == "file" && providers.Providers[0].Options.Path != "", "%+v", providers)
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, UID, Access, URL string
			IsDefault                    bool              `yaml:"isDefault"`
			JSONData                     map[string]string `yaml:"jsonData"`
		}
	}
	decode("provisioning/datasources/prometheus.yaml", &sources)
	expect.That(t, len(sources.Datasources) == 1 && sources.Datasources[0].Type == "prometheus" && sources.Datasources[0].JSONData["timeInterval"] != "",
		"%+v", sources)
}
