package console

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestRunbook_HasEachSectionBelowItsAnchor(t *testing.T) {
	r := newRig(t)
	page := r.open("/runbook")
	contains(t, page, `<h2 id="topicsyaml-was-refused">topics.yaml was refused</h2>`, `<a href="#redis-or-the-lock-is-down">`, "/docs/runbook.md", `<nav `)
	for _, s := range runbook.Sections() {
		_, text, found := strings.Cut(page, `<h2 id="`+s.Anchor+`">`)
		text, _, _ = strings.Cut(text, "</pre>")
		expect.That(t, found && strings.HasSuffix(html.UnescapeString(text), ">"+s.PlainText()), "the section %s is not whole", s.Anchor)
	}
	contains(t, r.open("/"), `<a href="/runbook">`)
	res, _ := r.do(http.MethodGet, "/runbook", "zh", nil)
	csp := res.Header.Get("Content-Security-Policy")
	expect.That(t, strings.Contains(csp, "default-src 'none'") && !strings.Contains(csp, "unsafe"), "Content-Security-Policy %q", csp)
}

func TestRunbook_MayBeElsewhere(t *testing.T) {
	c := &Console{}
	expect.Equal(t, (page{c: c}).Runbook("x"), "/runbook#x", "link to a section")
	c.o.Settings.BasePath = "/ops"
	p := page{c: c}
	expect.Equal(t, p.Runbook("x")+" "+p.Runbook(""), "/ops/runbook#x /ops/runbook", "runbook")
	got, want := p.Commands("the-closer-is-behind"), "orderclose doctor\n"
	expect.That(t, strings.HasPrefix(got, want), "%q, want %q", got, want)
	expect.Equal(t, p.Commands("none"), "", "commands")
	for _, k := range kinds() {
		section := k.Runbook
		expect.That(t, p.Commands(section) != "", "the section %s has no commands", section)
	}
	c.o.Settings.Runbook = "https://wiki.example/runbook"
	expect.Equal(t, p.Runbook("x"), "https://wiki.example/runbook#x", "runbook")
}
