package console

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	markdowntext "github.com/yuin/goldmark/text"

	"github.com/orderclose/orderclose/docs"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/runbook"
)

// documents is where the documents are that the runbook links to.
const documents = "https://github.com/orderclose/orderclose/blob/main/docs/"

// runbookData is what the page of the runbook shows.
type runbookData struct {
	Sections []runbook.Section
	Text     template.HTML
}

func (c *Console) serveRunbook(w http.ResponseWriter, r *http.Request) {
	c.render(w, r, http.StatusOK, c.newPage(r, "runbook", runbookData{runbook.Sections(), runbookHTML()}))
}

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
func (p page) WithConfig(text string) string {
	return ops.WithConfig(text, ops.ConfigFlag(p.c.o.TopicsFile))
}

// runbookHTML returns the runbook without its title, as HTML. It has no HTML of the document itself.
var runbookHTML = sync.OnceValue(func() template.HTML {
	_, source, _ := strings.Cut(docs.Runbook, "\n")
	var html bytes.Buffer
	if err := writeHTML(&html, []byte(source)); err != nil {
		panic(err) // of the tree: a mistake of this package, not of a document
	}
	return template.HTML(html.String())
})

// writeHTML writes Markdown as HTML. Each heading has the anchor that links to it use, and links to other
// documents lead to documents.
func writeHTML(html *bytes.Buffer, source []byte) error {
	base, err := url.Parse(documents)
	if err != nil {
		return err
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table))
	tree := markdown.Parser().Parse(markdowntext.NewReader(source))
	if err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			n.SetAttributeString("id", []byte(runbook.Anchor(strings.TrimSpace(string(n.Lines().Value(source))))))
		case *ast.Link:
			if to, err := base.Parse(string(n.Destination)); entering && err == nil && !bytes.HasPrefix(n.Destination, []byte("#")) {
				n.Destination = []byte(to.String())
			}
		}
		return ast.WalkContinue, nil
	}); err != nil {
		return err
	}
	return markdown.Renderer().Render(html, source, tree)
}
