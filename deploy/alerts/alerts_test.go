// Package alerts has the alert rules for Prometheus, in *.rules.yml, and their
// tests.
package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// promtool runs Prometheus' own checker on the files.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("REQUIRE_REAL") == "1" {
			t.Fatal("promtool is not there: run deploy/native/install.sh promtool")
		}
		t.Skip("promtool is not there")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return names
}

func TestAlerts_FireWhenTheyShould(t *testing.T) {
	promtool(t, append([]string{"check", "rules"}, files(t, "*.rules.yml")...)...)
	promtool(t, append([]string{"test", "rules"}, files(t, "*.test.yml")...)...)
}

// Each alert says how urgent it is and where in the runbook to look, and that
// place is there.
func TestAlerts_LeadIntoTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(runbook)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			anchors["docs/runbook.md#"+anchor(strings.TrimSpace(title))] = true
		}
	}
	for _, name := range files(t, "*.rules.yml") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			Groups []struct {
				Rules []struct {
					Alert               string
					Labels, Annotations map[string]string
				}
			}
		}
		if err := yaml.Unmarshal(data, &f); err != nil {
			t.Fatal(err)
		}
		for _, g := range f.Groups {
			for _, r := range g.Rules {
				if s := r.Labels["severity"]; s != "ticket" && s != "page" {
					t.Errorf("%s: %s has the severity %q, want ticket or page", name, r.Alert, s)
				}
				if url := r.Annotations["runbook_url"]; !anchors[url] {
					t.Errorf("%s: %s leads to %q, which is not there", name, r.Alert, url)
				}
			}
		}
	}
}

// anchor is what a heading is linked by.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
