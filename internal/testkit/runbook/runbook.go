// Package runbook reads docs/runbook.md, for tests: those that check its form, and those that do
// what it says.
package runbook

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
)

// The parts of a section, in their order.
var Parts = []string{"Meaning", "Money at risk", "Look", "Act", "Verify"}

// Section is one section of the runbook.
type Section struct {
	Title  string
	Anchor string   // the end of a link to it
	Alerts []string // the alerts that link to it, as it says itself
	parts  []part
}

type part struct{ name, text string }

var (
	partName  = regexp.MustCompile(`^\*\*([A-Z][a-z ]+)\.\*\* ?`)
	alertName = regexp.MustCompile("`(Orderclose[A-Za-z]+)`")
	fence     = regexp.MustCompile("^ *```(.*)$")
)

// Read returns the sections of a runbook by anchor.
func Read(path string) (map[string]Section, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the runbook: %w", err)
	}
	sections := map[string]Section{}
	for _, text := range strings.Split(string(data), "\n## ")[1:] {
		s := parse(text)
		if _, twice := sections[s.Anchor]; twice {
			return nil, fmt.Errorf("%s has two sections %q", path, s.Title)
		}
		sections[s.Anchor] = s
	}
	return sections, nil
}

func parse(text string) Section {
	title, text, _ := strings.Cut(text, "\n")
	s := Section{Title: title, Anchor: Anchor(title)}
	for line := range strings.Lines(text) {
		if alerts, ok := strings.CutPrefix(line, "Alerts: "); ok && len(s.parts) == 0 {
			for _, m := range alertName.FindAllStringSubmatch(alerts, -1) {
				s.Alerts = append(s.Alerts, m[1])
			}
		}
		if m := partName.FindStringSubmatch(line); m != nil {
			s.parts = append(s.parts, part{name: m[1]})
			line = line[len(m[0]):]
		}
		if n := len(s.parts); n > 0 {
			s.parts[n-1].text += line
		}
	}
	return s
}

// Check returns an error unless the section has all Parts in their order, each with a text.
func (s Section) Check() error {
	var have []string
	for _, p := range s.parts {
		have = append(have, p.name)
		if strings.TrimSpace(p.text) == "" {
			return fmt.Errorf("section %q: the part %s is empty", s.Title, p.name)
		}
	}
	if got, want := strings.Join(have, ", "), strings.Join(Parts, ", "); got != want {
		return fmt.Errorf("section %q has the parts %q, want %q", s.Title, got, want)
	}
	return nil
}

// Commands returns the lines of the code blocks of a part that are written in a language: sh or sql.
func (s Section) Commands(name, language string) []string {
	var all []string
	for _, p := range s.parts {
		if p.name != name {
			continue
		}
		inside := ""
		for line := range strings.Lines(p.text) {
			if m := fence.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
				if inside != "" {
					inside = ""
				} else {
					inside = m[1]
				}
				continue
			}
			if inside == language && strings.TrimSpace(line) != "" {
				all = append(all, strings.TrimSpace(line))
			}
		}
	}
	return all
}

// Anchor returns the anchor of a heading.
func Anchor(title string) string {
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
