// Package runbook reads the sections of docs/runbook.md, which is in the binary, and their commands. The
// console and orderclose runbook show them; tests check their form, and do what they say.
package runbook

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orderclose/orderclose/docs"
)

// Section is one section of the runbook.
type Section struct {
	Title  string   `json:"title"`
	Anchor string   `json:"anchor"` // the end of a link to it
	Alerts []string `json:"alerts"` // the alerts that link to it, as it says itself
	Text   string   `json:"text"`   // below the title, in Markdown
}

var (
	alertsLine = regexp.MustCompile(`(?m)^Alerts: .*$`)
	alertName  = regexp.MustCompile("`(Orderclose[A-Za-z]+)`")
	partName   = regexp.MustCompile(`(?m)^\*\*([A-Z][a-z ]+)\.\*\* ?`)
	block      = regexp.MustCompile("(?ms)^ *```(\\w*)$(.*?)^ *```$")
	heading    = regexp.MustCompile(`(?m)^###+ (.*)$`)
	bold       = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	link       = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
	notAnchor  = regexp.MustCompile(`[^\pL\pN _-]`)
)

// Sections returns the sections of the runbook, in their order.
var Sections = sync.OnceValue(func() []Section { return Parse(docs.Runbook) })

// Parse returns the sections of a text in the form of the runbook.
func Parse(text string) (all []Section) {
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		s := Section{Title: title, Anchor: Anchor(title), Text: strings.TrimSpace(text)}
		for _, m := range alertName.FindAllStringSubmatch(alertsLine.FindString(text), -1) {
			s.Alerts = append(s.Alerts, m[1])
		}
		all = append(all, s)
	}
	return all
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
// it, or an alert; or else the beginning, a part, or a word of one.
func Find(name string) (found []Section) {
	name = Anchor(strings.TrimSpace(name))
	for _, fit := range []func(string) bool{
		func(have string) bool { return have == name },
		func(have string) bool { return strings.HasPrefix(have, name) },
		func(have string) bool { return strings.Contains(have, name) },
		func(have string) bool {
			return slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool { return len(word) > 3 && strings.Contains(have, word) })
		},
	} {
		for _, s := range Sections() {
			names := []string{s.Anchor}
			for _, m := range heading.FindAllStringSubmatch(s.Text, -1) {
				names = append(names, Anchor(m[1]))
			}
			if slices.ContainsFunc(names, fit) || slices.ContainsFunc(s.Alerts, func(alert string) bool { return fit(Anchor(alert)) }) {
				found = append(found, s)
			}
		}
		if found != nil {
			break
		}
	}
	return found
}

// Plain returns the section with its title, for a terminal.
func (s Section) Plain() string { return s.Title + "\n\n" + s.PlainText() }

// PlainText returns the text without marks for bold text, and with the target of a link behind it.
func (s Section) PlainText() string {
	return link.ReplaceAllString(bold.ReplaceAllString(s.Text, "$1"), "$1 ($2)")
}

// Part is one of the parts of a section: Meaning, Act, Verify.
type Part struct{ Name, Text string }

// Parts returns the parts of the section, in their order.
func (s Section) Parts() (parts []Part) {
	end := len(s.Text)
	for _, at := range slices.Backward(partName.FindAllStringSubmatchIndex(s.Text, -1)) {
		parts = append(parts, Part{s.Text[at[2]:at[3]], s.Text[at[1]:end]})
		end = at[0]
	}
	slices.Reverse(parts)
	return parts
}

// First returns the first commands for a shell in Meaning and Act, at most three, each once. It leaves out
// those with --yes, before which a person reads a plan, and those for the category of an example.
func (s Section) First() (first []string) {
	for _, line := range append(s.Commands("Meaning", "sh"), s.Commands("Act", "sh")...) {
		if len(first) < 3 && !slices.Contains(first, line) && !strings.Contains(line, " --yes") && !strings.Contains(line, " --category ") { //mutant:no-plan
			first = append(first, line)
		}
	}
	return first
}

// Commands returns the lines of the code blocks of a part that are written in a language: sh or sql.
func (s Section) Commands(part, language string) (all []string) {
	for _, p := range s.Parts() {
		for _, m := range block.FindAllStringSubmatch(p.Text, -1) {
			for line := range strings.Lines(m[2]) {
				if line = strings.TrimSpace(line); p.Name == part && m[1] == language && line != "" {
					all = append(all, line)
				}
			}
		}
	}
	return all
}

// Anchor returns the anchor of a heading.
func Anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(notAnchor.ReplaceAllString(title, "")), " ", "-")
}
