// Package runbook reads the sections of docs/runbook.md, which is in the binary, and their commands. The
// console and orderclose runbook show them; tests check their form, and do what they say.
package runbook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/orderclose/orderclose/docs"
)

// Parts are the parts of a section, in their order.
var Parts = []string{"Meaning", "Money at risk", "Look", "Act", "Verify"}

// Section is one section of the runbook.
type Section struct {
	Title  string   `json:"title"`
	Anchor string   `json:"anchor"` // the end of a link to it
	Alerts []string `json:"alerts"` // the alerts that link to it, as it says itself
	Text   string   `json:"text"`   // below the title, in Markdown

	parts []part
}

type part struct{ name, text string }

var (
	partName  = regexp.MustCompile(`^\*\*([A-Z][a-z ]+)\.\*\* ?`)
	alertName = regexp.MustCompile("`(Orderclose[A-Za-z]+)`")
	fence     = regexp.MustCompile("^ *```(.*)$")
	heading   = regexp.MustCompile(`(?m)^###+ (.*)$`)
	bold      = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	link      = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
)

// Sections returns the sections of the runbook, in their order.
var Sections = sync.OnceValue(func() []Section { return Parse(docs.Runbook) })

// Parse returns the sections of a text in the form of the runbook.
func Parse(text string) (all []Section) {
	for _, section := range strings.Split(text, "\n## ")[1:] {
		all = append(all, parse(section))
	}
	return all
}

func parse(text string) Section {
	title, text, _ := strings.Cut(text, "\n")
	s := Section{Title: title, Anchor: Anchor(title), Text: strings.TrimSpace(text)}
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

// At returns the section with an anchor. It returns false if there is none.
func At(anchor string) (Section, bool) {
	i := slices.IndexFunc(Sections(), func(s Section) bool { return s.Anchor == anchor })
	if i < 0 {
		return Section{}, false
	}
	return Sections()[i], true
}

// Find returns the sections that a name fits best. A name is an anchor, a title, that of a heading below
// it, or an alert; or the beginning, a part, or a word of one. It returns none if nothing fits. exactly
// is false if only a word fits.
func Find(name string) (found []Section, exactly bool) {
	name = Anchor(strings.TrimSpace(name))
	fits := []func(string) bool{
		func(have string) bool { return have == name },
		func(have string) bool { return strings.HasPrefix(have, name) },
		func(have string) bool { return strings.Contains(have, name) },
		func(have string) bool {
			return slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool { return len(word) > 3 && strings.Contains(have, word) })
		},
	}
	for i, fit := range fits {
		for _, s := range Sections() {
			if slices.ContainsFunc(s.names(), fit) {
				found = append(found, s)
			}
		}
		if found != nil {
			return found, i < len(fits)-1
		}
	}
	return nil, false
}

// names returns what Find compares.
func (s Section) names() []string {
	names := []string{s.Anchor}
	for _, alert := range s.Alerts {
		names = append(names, Anchor(alert))
	}
	for _, m := range heading.FindAllStringSubmatch(s.Text, -1) {
		names = append(names, Anchor(m[1]))
	}
	return names
}

// Plain returns the section for a terminal: without marks for bold text, and with the target of a link
// behind it.
func (s Section) Plain() string {
	return s.Title + "\n\n" + link.ReplaceAllString(bold.ReplaceAllString(s.Text, "$1"), "$1 ($2)")
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

// First returns the first commands for a shell in Look and Act, at most three, each once. It leaves out
// those with --yes: before them a person reads a plan.
func (s Section) First() (first []string) {
	for _, line := range append(s.Commands("Look", "sh"), s.Commands("Act", "sh")...) {
		if len(first) < 3 && !slices.Contains(first, line) && !strings.Contains(line, " --yes") {
			first = append(first, line)
		}
	}
	return first
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
