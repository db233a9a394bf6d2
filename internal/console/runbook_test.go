package console

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var (
	hrefs = regexp.MustCompile(`href="([^"]*)"`)
	ids   = regexp.MustCompile(` id="([^"]*)"`)
)

// Each link of the page leads to a heading of the page, to a document of the repository, or to a page of
// the console.
func TestRunbook_LinksLeadSomewhere(t *testing.T) {
	r := newRig(t)
	page := r.open("/runbook")
	contains(t, page, `<h2 id="topicsyaml-was-refused">topics.yaml was refused</h2>`, `<h3 id="change-a-delay">`, `<th>metric</th>`,
		`<a href="#redis-or-the-lock-is-down">`,
		documents+"alerting.md#try-it", `<code class="language-sh">orderclose status`, `<nav `)
	anchors := map[string]bool{"main": true}
	for _, m := range ids.FindAllStringSubmatch(page, -1) {
		anchors[m[1]] = true
	}
	for _, s := range runbook.Sections() {
		expect.That(t, anchors[s.Anchor], "the page has no anchor %q", s.Anchor)
	}
	n := 0
	for _, m := range hrefs.FindAllStringSubmatch(page, -1) {
		to, file := m[1], ""
		switch {
		case strings.HasPrefix(to, "#"):
			expect.That(t, anchors[to[1:]], "a link to %s leads nowhere", to)
			n++
		case strings.HasPrefix(to, "https://"):
			file, _, _ = strings.Cut(strings.TrimPrefix(to, strings.TrimSuffix(documents, "docs/")), "#")
			_, err := os.Stat(filepath.Join("../..", filepath.FromSlash(file)))
			expect.That(t, err == nil, "%s: %v", to, err)
			n++
		case !strings.HasPrefix(to, "/"):
			t.Errorf("a link to %q", to)
		}
	}
	expect.That(t, n >= 100, "%d links only", n)
	contains(t, r.open("/"), `<a href="/runbook">`)
	res, _ := r.do(http.MethodGet, "/runbook", "zh", nil)
	csp := res.Header.Get("Content-Security-Policy")
	expect.That(t, strings.Contains(csp, "default-src 'none'") && !strings.Contains(csp, "unsafe"), "Content-Security-Policy %q", csp)
}

func TestRunbook_EscapesWhatTheDocumentHas(t *testing.T) {
	html := string(toHTML("## A <b>\n\n<script>x</script> `<i>` [a](javascript:alert(1)) [b]()\n\n| <u> |\n| --- |\n| `<u>` |\n\n```sh\necho \"<s>\"\n```\n"))
	for _, refused := range []string{"<script", "<b>", "<i>", "<u>", "<s>", "javascript:"} {
		expect.That(t, !strings.Contains(html, refused), "the page has %q:\n%s", refused, html)
	}
}

func TestRunbook_MayBeElsewhere(t *testing.T) {
	c := &Console{}
	expect.Equal(t, (page{c: c}).Runbook("x"), "/runbook#x", "link to a section")
	c.o.Settings.BasePath, c.o.TopicsFile = "/ops", "/etc/our topics.yaml"
	p := page{c: c}
	expect.Equal(t, p.Runbook("x")+" "+p.Runbook(""), "/ops/runbook#x /ops/runbook", "runbook")
	if got, want := p.Commands("the-closer-is-behind"), "orderclose --config '/etc/our topics.yaml' doctor\n"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	expect.Equal(t, p.Commands("none"), "", "commands")
	for _, k := range kinds() {
		section := k.Runbook
		expect.That(t, p.Commands(section) != "", "the section %s has no commands", section)
	}
	c.o.Settings.Runbook = "https://wiki.example/runbook"
	expect.Equal(t, p.Runbook("x"), "https://wiki.example/runbook#x", "runbook")
}
