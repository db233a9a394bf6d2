package console

import (
	"bytes"
	"html/template"
	"net/url"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	markdowntext "github.com/yuin/goldmark/text"

	"github.com/orderclose/orderclose/docs"
	"github.com/orderclose/orderclose/internal/runbook"
)

// documents is where the documents are that the runbook links to.
const documents = "https://github.com/orderclose/orderclose/blob/main/docs/"

// Sections returns the sections of the runbook.
func (page) Sections() []runbook.Section { return runbook.Sections() }

// Runbook returns the address of a section of the runbook; that of the whole if section is "".
func (p page) Runbook(section string) string {
	address := p.c.o.Settings.Runbook
	if address == "" {
		address = p.Base() + "/runbook"
	}
	if section == "" {
		return address
	}
	return address + "#" + section
}

// Commands returns the first commands of a section of the runbook.
func (p page) Commands(section string) string {
	s, _ := runbook.At(section)
	return p.WithConfig(strings.Join(s.First(), "\n"))
}

// WithConfig adds the flag --config to the commands of a text.
func (p page) WithConfig(text string) string { return p.c.o.Reads.WithConfig(text, p.c.o.TopicsFile) }

// runbookHTML returns the runbook without its title.
var runbookHTML = sync.OnceValue(func() template.HTML {
	_, source, _ := strings.Cut(docs.Runbook, "\n")
	return toHTML(source)
})

// toHTML returns Markdown as HTML, without HTML that the text has. Each heading has the anchor that links
// to it use, and links to other documents lead to documents.
func toHTML(source string) template.HTML {
	base, _ := url.Parse(documents)
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table))
	tree := markdown.Parser().Parse(markdowntext.NewReader([]byte(source)))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			n.SetAttributeString("id", []byte(runbook.Anchor(strings.TrimSpace(string(n.Lines().Value([]byte(source)))))))
		case *ast.Link:
			if to, err := base.Parse(string(n.Destination)); entering && err == nil && !bytes.HasPrefix(n.Destination, []byte("#")) {
				n.Destination = []byte(to.String())
			}
		}
		return ast.WalkContinue, nil
	})
	var html bytes.Buffer
	_ = markdown.Renderer().Render(&html, []byte(source), tree) // a buffer has no errors
	return template.HTML(html.String())
}
